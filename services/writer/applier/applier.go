// Package applier writes the EndpointSlices of a Service as the planner wants them. It is the only package that changes
// them.
//
// It guarantees that what it reports as current is never older than its own writes, that a new term begins with a
// listing of its slices, that a write with an unknown outcome is looked up before the next one, and that what other
// clients change in owned slices is repaired, with pauses if they keep changing it. It writes only while this process
// surely leads. It does not decide what to write or when to retry.
//
// Kubernetes has no fencing token. Instead, updates and deletes carry the resourceVersion that they are based on
// (deletes also the UID), creates use fixed names, requests end after 5 s, and leadership is checked just before each:
// a write that is late nevertheless never overwrites one of the next leader.
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

// deadline limits every request. It is short against the Lease, whose next holder must not meet the request.
const deadline = 5 * time.Second

// After a conflict the write is repeated immediately: the other client has written. If conflicts go on, it is no other
// writer that answers so, and retries are delayed by 250 ms to 4 s.
const (
	immediateConflicts = 3
	minConflictDelay   = 250 * time.Millisecond
)

// Config has what an Applier needs.
type Config struct {
	Store   Store
	Leading func() bool // whether this process surely leads at this moment
	// Confirm reads the holder of the Lease from the API server: nil if it is this process, else election.ErrNotLeader.
	// Nil: Leading suffices, as in a dry run.
	Confirm  func(context.Context) error
	Reporter *events.Reporter
	Logger   *slog.Logger
	Metrics  *Metrics     // shared by all Appliers of the process
	History  *history.Log // shared too; nil: none
}

// Applier writes the slices of one Service, one Apply or Withdraw at a time. The other methods may be called meanwhile.
type Applier struct {
	cfg Config

	mu     sync.Mutex
	memory *memory // of the current term
}

// New returns an Applier that has written nothing yet.
func New(cfg Config) *Applier { return &Applier{cfg: cfg, memory: newMemory()} }

// StartTerm forgets what earlier terms did: another leader may have written since.
func (a *Applier) StartTerm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memory = newMemory()
}

// Observed returns the Service's slices as they are now: the cache's, or what is known to be newer. version is a
// lower bound of how recent the cache is; see targets.Resolution.
func (a *Applier) Observed(cached []*discoveryv1.EndpointSlice, version string) []*discoveryv1.EndpointSlice {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.memory.observe(cached, version)
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

// Order is what the slices of a Service should become.
type Order struct {
	Service   corev1.ObjectReference // that Desired is for
	Desired   planner.Desired
	Current   []*discoveryv1.EndpointSlice // as Observed returned it
	Adjust    bool                         // only change the conditions of what is listed, see planner.AdjustExisting
	ReasonFor func(netip.Addr) string      // of the decision about an address, for the history; may be nil
}

func (o *Order) plan() planner.Plan {
	if o.Adjust {
		return planner.AdjustExisting(o.Desired, o.Current)
	}
	return planner.Compute(o.Desired, o.Current)
}

// Apply plans from the current slices to the desired ones, and writes until it is done or something is not as
// expected. It returns the plan even if that was not carried out. After an error that is neither election.ErrNotLeader nor a
// StaleError or RetryLaterError, apply again with backoff.
func (a *Applier) Apply(ctx context.Context, order Order) (planner.Plan, error) {
	m := a.begin(order.Service)
	plan := order.plan()
	if !a.cfg.Leading() {
		if plan.Empty() {
			return plan, nil
		}
		return plan, election.ErrNotLeader
	}
	if err := a.resolveUnsure(ctx, m, &order); err != nil {
		return plan, err
	}
	change := m.foreignChange(plan, order.Current)
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
		a.cfg.Reporter.ReportRecovery(order.Service, inSyncAgain, m.rejectionReported)
	}
	m.conflicts, m.rejectionReported = 0, time.Time{}
	return plan, nil
}

// inSyncAgain is reported when a Service has nothing left to write after a rejected write.
var inSyncAgain = events.Recovery{Reason: "WritesInSync", Note: "EndpointSlices are as decided again, after the API server had rejected a write."}

// Withdraw deletes these owned slices: their Service is no longer a target. Its errors are those of Apply.
func (a *Applier) Withdraw(ctx context.Context, service corev1.ObjectReference, owned []*discoveryv1.EndpointSlice) error {
	m, order := a.begin(service), Order{Service: service, Current: owned}
	if len(a.unsureNames(m)) > 0 { // the preconditions of a delete make any other listing unnecessary
		if err := a.resolveUnsure(ctx, m, &order); err != nil {
			return err
		}
	}
	if err := a.writePlan(ctx, m, planner.Plan{Delete: owned}, &order); err != nil {
		return err
	}
	m.conflicts, m.rejectionReported = 0, time.Time{}
	return nil
}

// writePlan writes until it is done or something is not as expected.
func (a *Applier) writePlan(ctx context.Context, m *memory, plan planner.Plan, order *Order) error {
	if !plan.Empty() {
		tracepoint.Log(a.cfg.Logger, tracepoint.Plan, slog.String("service", order.Service.Namespace+"/"+order.Service.Name),
			slog.Int("creates", len(plan.Create)), slog.Int("updates", len(plan.Update)), slog.Int("deletes", len(plan.Delete)))
	}
	for _, step := range []struct {
		verb   verb
		slices []*discoveryv1.EndpointSlice
	}{{create, plan.Create}, {update, plan.Update}, {remove, plan.Delete}} {
		for _, slice := range step.slices {
			if err := a.writeSlice(ctx, m, step.verb, slice, order); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeSlice sends one request and records its outcome.
func (a *Applier) writeSlice(ctx context.Context, m *memory, verb verb, slice *discoveryv1.EndpointSlice, order *Order) error {
	if !a.cfg.Leading() || !a.isCurrent(m) {
		return election.ErrNotLeader
	}
	start := time.Now()
	tracepoint.Mark(tracepoint.Plan)
	answer, err := a.send(ctx, verb, slice)
	tracepoint.Mark(tracepoint.Write)
	outcome := outcomeOf(verb, err)
	attrs := []slog.Attr{
		slog.String("service", order.Service.Namespace+"/"+order.Service.Name), slog.String("slice", slice.Name),
		slog.String("verb", string(verb)), slog.String("result", string(outcome)), slog.Int("endpoints", len(slice.Endpoints)),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	tracepoint.Log(a.cfg.Logger, tracepoint.Write, attrs...)
	a.cfg.Metrics.observe(verb, outcome, time.Since(start))
	a.addHistory(verb, slice, order, outcome, err)

	switch outcome {
	case outcomeOK:
		a.mu.Lock()
		defer a.mu.Unlock()
		m.recordWrite(verb, slice, answer)
		a.cfg.Logger.Info("slice written", "verb", verb, "namespace", slice.Namespace, "slice", slice.Name, "endpoints", len(slice.Endpoints))
		return nil
	case outcomeConflict:
		return a.handleConflict(ctx, m, verb, slice, order, err)
	case outcomeThrottled:
		wait := time.Second
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
			wait = time.Duration(seconds) * time.Second
		}
		return a.retryLater(verb, slice, wait, err)
	case outcomeTerminating: // nobody needs to act
		a.cfg.Logger.Debug("slice not written, namespace is being deleted", "verb", verb, "namespace", slice.Namespace, "slice", slice.Name, "error", err)
		return &RetryLaterError{At: time.Now().Add(terminatingDelay), Err: fmt.Errorf("%s slice %s: %w", verb, slice.Name, err)}
	case outcomeRejected:
		if m.rejectionReported.IsZero() {
			m.rejectionReported = time.Now()
			a.cfg.Reporter.Report(order.Service, events.Warning{
				Reason: "WriteRejected", Action: "Retry",
				Note: fmt.Sprintf("API server rejected %s of EndpointSlice %s. The Service keeps its current endpoints. Fix the permission, admission policy or quota: %v", verb, slice.Name, err),
			})
		}
		return fmt.Errorf("%s slice %s: %w", verb, slice.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m.unsure[slice.Name] = struct{}{}
	if errors.Is(err, election.ErrNotLeader) { // from LeaderOnly, perhaps about a repeated attempt
		return election.ErrNotLeader
	}
	return fmt.Errorf("%s slice %s, outcome unknown: %w", verb, slice.Name, err)
}

// handleConflict reads the slices again. What they were left as stays known: the write did not take place.
func (a *Applier) handleConflict(ctx context.Context, m *memory, verb verb, slice *discoveryv1.EndpointSlice, order *Order, conflict error) error {
	if _, err := a.readSlices(ctx, m, order, slice.Name); err != nil {
		m.listed = false
		return err
	}
	if m.conflicts++; m.conflicts > immediateConflicts {
		return a.retryLater(verb, slice, minConflictDelay<<min(m.conflicts-immediateConflicts-1, 4), conflict)
	}
	return &StaleError{Slice: slice.Name, Err: conflict}
}

// addHistory records a request and its result for status pages.
func (a *Applier) addHistory(verb verb, slice *discoveryv1.EndpointSlice, order *Order, outcome outcome, err error) {
	if a.cfg.History == nil {
		return
	}
	var old, written *discoveryv1.EndpointSlice
	if n := slices.IndexFunc(order.Current, func(s *discoveryv1.EndpointSlice) bool { return s.Name == slice.Name }); n >= 0 {
		old = order.Current[n]
	}
	if verb != remove {
		written = slice
	}
	w := history.Write{
		At: time.Now(), Namespace: order.Service.Namespace, Service: order.Service.Name, Slice: slice.Name,
		Verb: string(verb), Result: string(outcome), Changes: history.CompareSlices(old, written, order.ReasonFor),
	}
	if outcome != outcomeOK {
		w.Message = display.Sanitize(err.Error())
	}
	a.cfg.History.AddWrite(w)
}

func (a *Applier) retryLater(verb verb, slice *discoveryv1.EndpointSlice, wait time.Duration, err error) error {
	at := time.Now().Add(wait)
	a.cfg.Logger.Warn("slice write delayed", "verb", verb, "namespace", slice.Namespace, "slice", slice.Name, "until", at, "error", err)
	return &RetryLaterError{At: at, Err: fmt.Errorf("%s slice %s: %w", verb, slice.Name, err)}
}

func (a *Applier) send(ctx context.Context, verb verb, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	switch verb {
	case create:
		return a.cfg.Store.Create(ctx, slice)
	case update:
		return a.cfg.Store.Update(ctx, slice)
	default:
		return nil, a.cfg.Store.Delete(ctx, slice)
	}
}
