// Package applier makes the consuming cluster as the planner wants it, and is the only
// package that changes anything there. It promises to remember its own writes, so that what
// we hold is never older than they are, and to put right what others change in our slices.
// It refuses to send while it does not surely lead, and to fight another writer at full speed.
//
// Kubernetes has no fencing token. In its place updates and deletes carry the resourceVersion
// they rest upon (deletes the UID too), creates use fixed names, requests end after 5 s, and
// leadership is checked just before each: a write that is late all the same never overwrites
// one of the next leader.
package applier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/election"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// deadline ends every request: short against the Lease, whose next holder must not meet it.
const deadline = 5 * time.Second

// A conflict is answered at once: whoever wrote meanwhile has written. When that goes on,
// what answers so is not another writer, and is asked less and less often: after 250 ms to 4 s.
const (
	freeConflicts    = 3
	shortestConflict = 250 * time.Millisecond
)

// Stale says that a slice is not as the plan thought, and that it was read again: look at
// Current and Held again, decide and apply again, at once.
type Stale struct {
	Slice string
	Err   error // what the API server said
}

func (s *Stale) Error() string { return fmt.Sprintf("slice %s changed: %v", s.Slice, s.Err) }

// Unwrap gives what the API server said.
func (s *Stale) Unwrap() error { return s.Err }

// Later says that nothing was written and when to apply again.
type Later struct {
	At  time.Time
	Err error
	// Repair says that only the mending of what others did waits: with a change of our own
	// apply at once.
	Repair bool
}

func (l *Later) Error() string {
	return fmt.Sprintf("not before %s: %v", l.At.Format(time.TimeOnly), l.Err)
}

// Unwrap gives the reason.
func (l *Later) Unwrap() error { return l.Err }

// Config is what an Applier needs.
type Config struct {
	Store   Store
	Leading func() bool // whether the Lease is surely ours at this moment
	// Confirm asks the API server for that: nil if it is ours, election.ErrNotLeader if not. Without it the word of
	// Leading is enough, as in a rehearsal.
	Confirm  func(context.Context) error
	Reporter *events.Reporter
	Logger   *slog.Logger
	Metrics  *Metrics     // shared by all Appliers of the process
	History  *history.Log // too; nil: nothing is remembered for people
}

// Applier writes the slices of one Service, one Apply or Withdraw at a time.
type Applier struct {
	store    Store
	leading  func() bool
	confirm  func(context.Context) error
	reporter *events.Reporter
	log      *slog.Logger
	metrics  *Metrics
	history  *history.Log

	mu      sync.Mutex
	records map[key]*record
	repair  budget
	// reign counts how often another one may have written; settled is the last one in which all slices
	// were right, and begun the one in which the Apply or Withdraw under way began.
	reign, settled, begun int

	// Since the last Apply or Withdraw that succeeded; one at a time has them.
	conflicts int
	refusedIn int // the reign in which a refusal was reported; 0: none was
}

// key names a slice.
type key struct{ namespace, name string }

// New makes an Applier that has written nothing yet.
func New(cfg Config) *Applier {
	return &Applier{
		store: cfg.Store, leading: cfg.Leading, confirm: cfg.Confirm, reporter: cfg.Reporter, log: cfg.Logger,
		metrics: cfg.Metrics, history: cfg.History,
		records: map[key]*record{}, reign: 1,
	}
}

// Order is how the slices of a Service are to become.
type Order struct {
	Service corev1.ObjectReference // the one that Desired is for
	Desired planner.Desired
	Current []*discoveryv1.EndpointSlice // as Current gave it
	Adjust  bool                         // only what the slices list changes, see planner.AdjustExisting
	Why     func(netip.Addr) string      // what was decided of an address, for the history; nil: nobody knows
}

// Apply plans from what is current to what is desired, and writes until done or until
// something is not as thought. The plan is what was to be done, whatever became of it.
// After an error that is neither election.ErrNotLeader, nor Stale, nor Later, apply again with
// backoff.
func (a *Applier) Apply(ctx context.Context, order Order) (planner.Plan, error) {
	service, desired, current := order.Service, order.Desired, order.Current
	if err := a.recall(ctx, service); err != nil {
		return planner.Plan{}, err
	}
	plan := order.plan()
	if !a.leading() {
		if plan.Empty() {
			return plan, nil
		}
		return plan, election.ErrNotLeader
	}
	if err := a.look(ctx, service, desired, current); err != nil {
		return plan, err
	}
	change := a.foreignChange(service, plan, current)
	if a.confirm != nil && change != nil {
		if err := a.confirm(ctx); err != nil {
			return plan, err
		}
	}
	repairs, err := a.mayRepair(order, plan, change)
	if err != nil {
		return plan, err
	}
	err = a.carryOut(ctx, plan, order)
	if repairs > 0 && !namespaceEnds(err) {
		a.repaired(service, repairs, change)
	}
	if err != nil {
		return plan, err
	}
	if !order.Adjust { // what others did to a slice meanwhile is not taken for right
		a.settle(service, desired, current, plan)
	}
	a.conflicts, a.refusedIn = 0, 0
	return plan, nil
}

// carryOut writes until done or until something is not as thought.
func (a *Applier) carryOut(ctx context.Context, plan planner.Plan, order Order) error {
	a.logPlan(order.Service, plan)
	for _, step := range []struct {
		verb   verb
		slices []*discoveryv1.EndpointSlice
	}{{create, plan.Create}, {update, plan.Update}, {remove, plan.Delete}} {
		for _, slice := range step.slices {
			if err := a.write(ctx, step.verb, slice, order); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Order) plan() planner.Plan {
	if o.Adjust {
		return planner.AdjustExisting(o.Desired, o.Current)
	}
	return planner.Compute(o.Desired, o.Current)
}

// Withdraw deletes these slices of ours: their Service is none of our targets any more.
// Its errors are those of Apply.
func (a *Applier) Withdraw(ctx context.Context, service corev1.ObjectReference, ours []*discoveryv1.EndpointSlice) error {
	if err := a.recall(ctx, service); err != nil {
		return err
	}
	a.logPlan(service, planner.Plan{Delete: ours})
	for _, slice := range ours {
		if err := a.write(ctx, remove, slice, Order{Service: service, Current: ours}); err != nil {
			return err
		}
	}
	a.conflicts, a.refusedIn = 0, 0
	return nil
}

// write sends one request and makes sense of its answer.
func (a *Applier) write(ctx context.Context, verb verb, slice *discoveryv1.EndpointSlice, order Order) error {
	service := order.Service
	if !a.leading() {
		return election.ErrNotLeader
	}
	began := time.Now()
	tracepoint.Mark(tracepoint.Plan)
	answer, err := a.send(ctx, verb, slice)
	tracepoint.Mark(tracepoint.Write)
	a.logWrite(verb, slice, order, err)
	a.metrics.observe(verb, err, time.Since(began))
	a.remember(verb, slice, order, err)

	k := key{slice.Namespace, slice.Name}
	switch {
	case err == nil, verb == remove && apierrors.IsNotFound(err):
		a.wrote(service, verb, slice, answer)
		a.log.Info("slice written", "verb", verb, "namespace", k.namespace, "slice", k.name, "endpoints", len(slice.Endpoints))
		return nil
	case errors.Is(err, election.ErrNotLeader): // said by Guard, perhaps of a repeated attempt
		a.doubt(service, verb, slice)
		return election.ErrNotLeader
	case ctx.Err() != nil:
		a.doubt(service, verb, slice)
		return fmt.Errorf("%s slice %s: %w", verb, k.name, err)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), verb == update && apierrors.IsNotFound(err):
		a.doubt(service, verb, slice)
		if err := a.reread(ctx, k); err != nil {
			return err
		}
		if a.conflicts++; a.conflicts > freeConflicts {
			return a.later(verb, k, shortestConflict<<min(a.conflicts-freeConflicts-1, 4), err)
		}
		return &Stale{Slice: k.name, Err: err}
	case apierrors.IsTooManyRequests(err):
		wait := time.Second
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
			wait = time.Duration(seconds) * time.Second
		}
		return a.later(verb, k, wait, err)
	case namespaceEnds(err):
		a.log.Debug("slice not written, namespace is being deleted", "verb", verb, "namespace", k.namespace, "slice", k.name, "error", err)
		return &Later{At: time.Now().Add(terminatingPause), Err: fmt.Errorf("%s slice %s: %w", verb, k.name, err)}
	case refused(err):
		if a.refusedIn != a.begun { // another leader may have succeeded meanwhile: each term reports it once
			a.refusedIn = a.begun
			a.reporter.Report(service, events.Warning{
				Reason: "WriteRejected", Action: "Retry",
				Note: fmt.Sprintf("API server rejected %s of EndpointSlice %s. The Service keeps its current endpoints. Fix the permission, admission policy or quota: %v", verb, k.name, err),
			})
		}
		return fmt.Errorf("%s slice %s: %w", verb, k.name, err)
	default:
		// No answer, or one that leaves open whether the write took place. It is looked up
		// before anything else is planned.
		a.doubt(service, verb, slice)
		return fmt.Errorf("%s slice %s, outcome unknown: %w", verb, k.name, err)
	}
}

// remember has the history know what was sent and what became of it.
func (a *Applier) remember(verb verb, slice *discoveryv1.EndpointSlice, order Order, err error) {
	if a.history == nil {
		return
	}
	var was, now *discoveryv1.EndpointSlice
	if n := slices.IndexFunc(order.Current, func(s *discoveryv1.EndpointSlice) bool { return s.Name == slice.Name }); n >= 0 {
		was = order.Current[n]
	}
	if verb != remove {
		now = slice
	}
	w := history.Write{
		At: time.Now(), Namespace: order.Service.Namespace, Service: order.Service.Name, Slice: slice.Name,
		Verb: string(verb), Result: result(verb, err), Changes: history.CompareSlices(was, now, order.Why),
	}
	if w.Result != resultOK {
		w.Message = display.Sanitize(err.Error())
	}
	a.history.AddWrite(w)
}

// later puts a write off.
func (a *Applier) later(verb verb, k key, wait time.Duration, err error) error {
	at := time.Now().Add(wait)
	a.log.Warn("slice write delayed", "verb", verb, "namespace", k.namespace, "slice", k.name, "until", at, "error", err)
	return &Later{At: at, Err: fmt.Errorf("%s slice %s: %w", verb, k.name, err)}
}

func (a *Applier) send(ctx context.Context, verb verb, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	switch verb {
	case create:
		return a.store.Create(ctx, slice)
	case update:
		return a.store.Update(ctx, slice)
	default:
		return nil, a.store.Delete(ctx, slice)
	}
}

// recall begins an Apply or Withdraw: it reads the Service's slices whose last write we lost sight of. If
// there were any, what the caller decided upon is too old.
func (a *Applier) recall(ctx context.Context, service corev1.ObjectReference) error {
	a.mu.Lock()
	a.begun = a.reign
	a.mu.Unlock()
	var stale error
	for _, k := range a.doubted(service) {
		if err := a.reread(ctx, k); err != nil {
			return err
		}
		stale = &Stale{Slice: k.name, Err: errors.New("outcome of the last write is unknown")}
	}
	return stale
}

func (a *Applier) reread(ctx context.Context, k key) error {
	slice, err := a.get(ctx, k)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reread slice %s: %w", k.name, err)
	}
	if err != nil {
		slice = nil
	}
	a.found(k, slice)
	return nil
}

// refused reports whether the API server said no for good: nothing was written. Its 5xx leave
// that open; etcd may have been slow to answer.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 && !apierrors.IsTimeout(err)
}
