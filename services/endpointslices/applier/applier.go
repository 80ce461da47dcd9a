// Package applier writes the EndpointSlices of a Service as the planner wants them. Together they are a library for
// controllers of EndpointSlices.
//
// It guarantees that what it reports as current is never older than its own writes, that a new term begins with a
// listing of its slices, that a write with an unknown outcome is looked up before the next one, and that what other
// clients change in owned slices is repaired, with pauses if they keep changing it. It writes only while this process
// leads. It does not decide what to write or when to retry.
//
// Kubernetes has no fencing token. Instead, updates and deletes carry the resourceVersion that they are based on
// (deletes also the UID), creates use fixed names, requests end after 5 s, and leadership is checked just before each:
// a write that is late nevertheless never overwrites one of the next leader.
package applier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

// deadline limits every request. It is short against the Lease, whose next holder must not meet the request.
const deadline = 5 * time.Second

// After a conflict the write is repeated immediately: the other client has written. If conflicts go on, it is no other
// writer that answers so, and retries are delayed by 250 ms to 4 s.
const (
	immediateConflicts = 3
	minConflictDelay   = 250 * time.Millisecond
)

// withdrawalDelay is how long a withdrawal waits that the API server shows to be too early.
const withdrawalDelay = time.Second

// Config has what an Applier needs. Only Store is required.
type Config struct {
	Store Store
	// FieldManager is the one of the Store. Whoever else modified a slice is named.
	FieldManager string
	// Leading reports whether this process leads at this moment. Nil: always, as in a program without replicas.
	Leading func() bool
	// Confirm reads from the API server who leads: nil if it is this process, else Apply returns its error. Nil: Leading
	// suffices, as in a dry run.
	Confirm func(context.Context) error
	Hooks   Hooks        // may be shared by Appliers
	Logger  *slog.Logger // nil: nothing is logged
}

// Applier writes the slices of one Service, one Apply at a time. The other methods may be called meanwhile.
type Applier struct {
	cfg Config

	mu     sync.Mutex
	memory *memory // of the current term
}

// New returns an Applier that has written nothing yet.
func New(cfg Config) *Applier {
	if cfg.Leading == nil {
		cfg.Leading = func() bool { return true }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Applier{cfg: cfg, memory: newMemory()}
}

// StartTerm forgets what earlier terms did: another leader may have written since, or a person whose edits stay. A cache
// that goes back to an older version calls for it too: etcd was restored, and does not have what was written.
func (a *Applier) StartTerm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memory = newMemory()
}

// Observed returns the Service's slices as they are now: the cache's, or what is known to be newer. version is a
// lower bound of how recent the cache is: the resourceVersion of a list that it contains, or of any newer object.
func (a *Applier) Observed(cached []*discoveryv1.EndpointSlice, version string) []*discoveryv1.EndpointSlice {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.memory.tracker.Observe(cached, version)
}

// LastApplied returns the observed slices as this term left them, without what other clients changed. Slices that this
// term has neither written nor found right are returned as they are: after a restart nothing else is known.
func (a *Applier) LastApplied(service corev1.ObjectReference, observed []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.memory.service != service.UID {
		return observed
	}
	return a.memory.lastApplied(observed)
}

// Admitted returns the slices that still are as mutating admission changed what this term wrote.
func (a *Applier) Admitted() (all []Admission) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, slice := range a.memory.tracker.slices {
		if admitted := a.memory.admitted[slice.Name]; !equalContent(slice, admitted.revert(slice)) {
			all = append(all, admitted)
		}
	}
	return all
}

// Order is what the slices of a Service should become.
type Order struct {
	Service corev1.ObjectReference // that Desired is for
	Desired planner.Desired
	Current []*discoveryv1.EndpointSlice // as Observed returned it
	Adjust  bool                         // only change the conditions of what is listed, see planner.AdjustExisting
	// Withdraw: the Service is no longer a target, delete what planner.Withdraw finds, as the API server has it now, if
	// Condition is true of that; nil: always.
	Withdraw  bool
	Condition func([]*discoveryv1.EndpointSlice) bool
	ReasonFor func(netip.Addr) string // of the decision about an address, for Hooks; may be nil
}

func (o *Order) plan() planner.Plan {
	switch {
	case o.Withdraw:
		return planner.Withdraw(o.Desired, o.Current)
	case o.Adjust:
		return planner.AdjustExisting(o.Desired, o.Current)
	}
	return planner.Compute(o.Desired, o.Current)
}

// Apply plans from the current slices to the desired ones, and writes until it is done or something is not as
// expected. It returns the plan even if that was not carried out. After an error that is neither ErrNotLeader nor a
// StaleError or RetryLaterError, apply again with backoff.
func (a *Applier) Apply(ctx context.Context, order Order) (planner.Plan, error) {
	m := a.begin(order.Service)
	order.Current = m.asSent(order.Current)
	plan := order.plan()
	if !a.cfg.Leading() {
		if plan.Empty() {
			return plan, nil
		}
		return plan, ErrNotLeader
	}
	if order.Withdraw {
		return plan, a.withdraw(ctx, m, order)
	}
	if err := a.resolveUnsure(ctx, m, &order); err != nil {
		return plan, err
	}
	change := m.foreignChange(plan, order.Current, a.cfg.FieldManager)
	if a.cfg.Confirm != nil && change != nil {
		if err := a.cfg.Confirm(ctx); err != nil {
			return plan, err
		}
	}
	repairs, err := a.checkRepairBudget(m, order, plan, change)
	if err != nil {
		return plan, err
	}
	err = a.writePlan(ctx, m, plan, &order)
	if repairs > 0 && !isNamespaceTerminating(err) {
		a.recordRepairs(m, order.Service, repairs, change)
	}
	if err != nil {
		return plan, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !order.Adjust { // else what others did to a slice does not count as right
		m.recordInSync(order.Desired, order.Current, plan)
	}
	if !m.rejectionReported.IsZero() {
		report(a.cfg.Hooks.InSync, order.Service, m.rejectionReported)
	}
	m.conflicts, m.rejectionReported = 0, time.Time{}
	return plan, nil
}

// withdraw reads the slices first: a cache may be behind, and it shows whether those of others replace them.
func (a *Applier) withdraw(ctx context.Context, m *memory, order Order) (err error) {
	if order.plan().Empty() {
		return nil
	}
	if order.Current, err = a.readSlices(ctx, m, &order); err != nil {
		return err
	}
	order.Current = m.asSent(order.Current)
	if order.Condition != nil && !order.Condition(order.Current) {
		return &RetryLaterError{At: time.Now().Add(withdrawalDelay), Err: errors.New("the slices are still needed")}
	}
	if err = a.writePlan(ctx, m, order.plan(), &order); err == nil {
		m.conflicts, m.rejectionReported = 0, time.Time{}
	}
	return err
}

// writePlan writes until something is not as expected. A rejected write does not stop those that can do without it; its
// error is returned at the end.
func (a *Applier) writePlan(ctx context.Context, m *memory, plan planner.Plan, order *Order) error {
	if !plan.Empty() {
		report(a.cfg.Hooks.Planned, order.Service, plan)
		a.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "plan", slog.String("service", nameOf(order.Service)),
			slog.Int("creates", len(plan.Create)), slog.Int("updates", len(plan.Update)), slog.Int("deletes", len(plan.Delete)))
	}
	p, rejection := newProgress(order), error(nil)
	for _, step := range []struct {
		verb   Verb
		slices []*discoveryv1.EndpointSlice
	}{{Create, plan.Create}, {Update, plan.Update}, {Delete, plan.Delete}} {
		for _, slice := range step.slices {
			after := slice
			if step.verb == Delete {
				after = nil
			}
			if p.mustWait(slice.Name, after) {
				continue
			}
			err := a.writeSlice(ctx, m, step.verb, slice, order)
			switch {
			case err == nil:
				p.listing = replace(p.listing, slice.Name, after)
			case errors.Is(err, errAnswered):
				rejection = cmp.Or(rejection, err)
				if after != nil {
					p.rejected = append(p.rejected, after)
				}
			default:
				return err
			}
		}
	}
	return rejection
}

// writeSlice sends one request and records its outcome.
func (a *Applier) writeSlice(ctx context.Context, m *memory, verb Verb, slice *discoveryv1.EndpointSlice, order *Order) error {
	if !a.cfg.Leading() || !a.isCurrent(m) {
		return ErrNotLeader
	}
	start := time.Now()
	answer, err := a.send(ctx, verb, slice)
	result := resultOf(verb, err)
	attrs := []slog.Attr{
		slog.String("service", nameOf(order.Service)), slog.String("slice", slice.Name),
		slog.String("verb", string(verb)), slog.String("result", string(result)), slog.Int("endpoints", len(slice.Endpoints)),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	a.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "write", attrs...)
	write := describeWrite(verb, slice, order)
	write.Result, write.Err, write.Took = result, err, time.Since(start)
	if a.cfg.Hooks.Wrote != nil {
		a.cfg.Hooks.Wrote(write)
	}

	log := a.cfg.Logger.With("verb", verb, "namespace", slice.Namespace, "slice", slice.Name)
	switch result {
	case ResultOK:
		a.mu.Lock()
		defer a.mu.Unlock()
		m.recordWrite(verb, slice, answer)
		log.Info("slice written", "endpoints", len(slice.Endpoints))
		return nil
	case ResultConflict:
		return a.handleConflict(ctx, m, verb, slice, order, err)
	case ResultThrottled:
		wait := time.Second
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
			wait = time.Duration(seconds) * time.Second
		}
		return a.retryLater(verb, slice, wait, err)
	case ResultTerminating: // nobody needs to act
		log.Debug("slice not written, namespace is being deleted", "error", err)
		return &RetryLaterError{At: time.Now().Add(terminatingDelay), Err: fmt.Errorf("%s slice %s: %w", verb, slice.Name, err)}
	case ResultRejected:
		if hook := a.cfg.Hooks.Rejected; hook != nil && m.rejectionReported.IsZero() && hook(order.Service, write) {
			m.rejectionReported = time.Now()
		}
		return fmt.Errorf("%s slice %s %w: %w", verb, slice.Name, errAnswered, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m.unsure[slice.Name] = struct{}{}
	if errors.Is(err, ErrNotLeader) { // from LeaderOnly, perhaps about a repeated attempt
		return ErrNotLeader
	}
	if apierrors.IsInternalError(err) { // as when a webhook of this slice fails
		return fmt.Errorf("%s slice %s %w, outcome unknown: %w", verb, slice.Name, errAnswered, err)
	}
	return fmt.Errorf("%s slice %s, outcome unknown: %w", verb, slice.Name, err)
}

// handleConflict reads the slices again. What they were left as stays known: the write did not take place.
func (a *Applier) handleConflict(
	ctx context.Context, m *memory, verb Verb, slice *discoveryv1.EndpointSlice, order *Order, conflict error,
) error {
	if _, err := a.readSlices(ctx, m, order, slice.Name); err != nil {
		m.listed = false
		return err
	}
	if m.conflicts++; m.conflicts > immediateConflicts {
		return a.retryLater(verb, slice, minConflictDelay<<min(m.conflicts-immediateConflicts-1, 4), conflict)
	}
	return &StaleError{Slice: slice.Name, Err: conflict}
}

func nameOf(service corev1.ObjectReference) string {
	name := service.Namespace + "/" + service.Name
	if service.Kind != "" && service.Kind != "Service" {
		name += "." + strings.ToLower(service.Kind)
	}
	return name
}

// describeWrite returns what a request is about.
func describeWrite(verb Verb, slice *discoveryv1.EndpointSlice, order *Order) Write {
	w := Write{Service: order.Service, Slice: slice.Name, Verb: verb, ReasonFor: order.ReasonFor}
	if n := slices.IndexFunc(order.Current, func(s *discoveryv1.EndpointSlice) bool { return s.Name == slice.Name }); n >= 0 {
		w.Old = order.Current[n]
	}
	if verb != Delete {
		w.New = slice
	}
	w.First = verb == Create && slice.Name == order.Desired.FirstName && !slices.ContainsFunc(order.Current, order.Desired.Owns)
	return w
}

func (a *Applier) retryLater(verb Verb, slice *discoveryv1.EndpointSlice, wait time.Duration, err error) error {
	at := time.Now().Add(wait)
	a.cfg.Logger.Warn("slice write delayed", "verb", verb, "namespace", slice.Namespace, "slice", slice.Name, "until", at, "error", err)
	return &RetryLaterError{At: at, Err: fmt.Errorf("%s slice %s: %w", verb, slice.Name, err)}
}

func (a *Applier) send(ctx context.Context, verb Verb, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	switch verb {
	case Create:
		return a.cfg.Store.Create(ctx, slice)
	case Update:
		return a.cfg.Store.Update(ctx, slice)
	default:
		return nil, a.cfg.Store.Delete(ctx, slice)
	}
}
