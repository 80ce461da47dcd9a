// Package reconciler keeps the slices of each target as its sources, its probes and its Service want them. Decide
// takes one decision about a target, Write carries out its newest order; each has a workqueue. What changed adds the
// targets that depend on it to the queue of decisions.
//
// It guarantees that a change wakes the targets that it concerns and no others, that no write delays a decision, that
// a write carries out the newest order, and that the Lease is handed over between writes. It does not decide, plan or
// write: packages verdict, planner and applier do.
package reconciler

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/election"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/inputs"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/propagation"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Config has the stages that a Reconciler calls. The caller runs them.
type Config struct {
	Sources  []Source
	Targets  Targets
	Prober   Prober
	Lease    Lease
	Limits   verdict.Limits    // of all targets: what their settings cannot change
	Zones    map[string]string // from zones of the secured clusters to zones here; others are not written
	Reporter *events.Reporter
	Board    *endpoints.Store        // nil: decisions are not published
	Applier  func() *applier.Applier // returns a new one, for a target

	DryRun func(report.Preview) // takes each decision, which is that of a leader, instead of a write; nil: it is written

	MaxEndpoints int // that one source may report for one target; 0: any number

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Source is one inventory: what it reports, and the addresses that it may report.
type Source struct {
	Feeds

	Name  string
	CIDRs []netip.Prefix

	AllowsPort func(port uint16) bool // ports that may be written and probed for it; nil: all
}

// Feeds receives the reports of one inventory: about its one set of nodes, which is the Service "", or about Services
// that it exports.
type Feeds interface {
	// Use sets the Service that a target uses, as namespace/name. The reports about it are received while a target uses
	// it. Leave ends that.
	Use(target, service string)
	Leave(target string)
	Snapshot(service string) subscriber.Snapshot
	TakeChanged() map[string]struct{} // Services whose snapshots have changed since the last call
	Changed() <-chan struct{}         // TakeChanged may return some; one reader
}

// Targets finds the Services to manage.
type Targets interface {
	Get(key targets.Key, leadingSince time.Time) targets.Resolution
	TakeChanged() []targets.Key // those that may have changed since the last call
	Changed() <-chan struct{}   // TakeChanged may return some; one reader
	Synced() error              // nil: all that existed at the start are known
}

// Prober probes endpoints.
type Prober interface {
	Set(target string, requests []probe.Request) // replaces what is probed for a target
	Statuses(requests []probe.Request) []probe.Status
	TakeChanged() []string    // targets with a status that changed since the last call
	Changed() <-chan struct{} // TakeChanged may return some; one reader
}

// Lease decides which writer writes.
type Lease interface {
	// Term is the number of this writer's current term, counted from 1; 0: it does not surely lead.
	Term() int
	Since() time.Time         // when it was taken for this term
	Changed() <-chan struct{} // it was taken or lost; one reader
	// Release has this writer stop leading. No other writer takes the Lease before handOver is called, which must wait
	// until no write is in progress.
	Release() (handOver func())
}

// Queue has the keys of targets to process. It never has the same key processed twice at a time.
type Queue interface {
	Add(key targets.Key)
	AddAfter(key targets.Key, wait time.Duration)
}

// A write that fails is repeated after 1 s, and then less and less often.
const (
	minRetryDelay = time.Second
	maxRetryDelay = 8 * time.Second
)

// Reconciler decides about targets and writes the decisions.
type Reconciler struct {
	Config

	sources     map[string]Source
	allows      targets.Allows // which ports may be written and probed
	propagation *propagation.Metrics
	decisions   Queue
	writes      Queue
	backoff     workqueue.TypedRateLimiter[targets.Key] // of writes
	stepDown    stepDown
	startup     startup
	dependents  *dependents

	mu     sync.Mutex
	states map[targets.Key]*state
}

// state is what a Reconciler knows about one target. Decide owns all that is not safe for concurrent use.
type state struct {
	slot    slot
	applier *applier.Applier
	version string // how recent the last view was

	uid         types.UID // of the Service that the rest is about
	term        term
	memory      verdict.Memory
	decision    verdict.Decision
	sources     map[string]*inputs.Source // by subscriber.Snapshot.FeedName
	current     inputs.Current
	probed      []probe.Request
	propagation propagation.Tracker
	health      endpoints.Health
}

// term is a term of leadership, and when it began; zero: another writer leads.
type term struct {
	number int
	since  time.Time
}

func termOf(lease Lease) (t term) {
	if t.number = lease.Term(); t.number != 0 {
		t.since = lease.Since() // of this term, or of one that has begun in between, in which nothing is decided yet
	}
	return t
}

// New returns a Reconciler. Its owner calls Decide and Write for the keys in the two queues.
func New(cfg Config, decisions, writes Queue) *Reconciler {
	r := &Reconciler{
		Config:      cfg,
		sources:     map[string]Source{},
		propagation: propagation.NewMetrics(cfg.Registerer),
		decisions:   decisions,
		writes:      writes,
		backoff:     workqueue.NewTypedItemExponentialFailureRateLimiter[targets.Key](minRetryDelay, maxRetryDelay),
		stepDown:    stepDown{probes: map[targets.Key]verdict.Decision{}},
		startup:     startup{undecided: map[targets.Key]struct{}{}},
		states:      map[targets.Key]*state{},
		dependents:  newDependents(),
	}
	bySource := map[string]func(uint16) bool{}
	for _, source := range cfg.Sources {
		r.sources[source.Name], bySource[source.Name] = source, source.AllowsPort
	}
	r.allows = targets.NewAllows(bySource)
	return r
}

// state returns the state of a target. It creates one if there is none.
func (r *Reconciler) state(key targets.Key) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.states[key]
	if s == nil {
		s = &state{sources: map[string]*inputs.Source{}}
		r.states[key] = s
	}
	return s
}

// Decide takes a decision about a target and orders what has to be written. It must not be called twice at a time for
// the same key.
func (r *Reconciler) Decide(key targets.Key, now time.Time) {
	s := r.state(key)
	before := s.term.number
	s.term = termOf(r.Lease)
	view := r.Targets.Get(key, s.term.since)
	if s.applier == nil {
		s.applier = r.Applier()
	}
	// Another leader may have written in between, a person edits the slices during a pause, or etcd was restored.
	if s.term.number != before || view.Settings.Paused || applier.IsNewer(s.version, view.ResourceVersion) {
		s.applier.StartTerm()
	}
	if s.version = view.ResourceVersion; view.State == targets.Unknown {
		return
	}
	r.startOver(s, view.Owner.UID, now)
	var input verdict.Input
	var order *order
	snapshots := r.snapshots(key, view)
	ports := r.portsOf(&view.Target)
	if s.decision = (verdict.Decision{}); view.Active() {
		current := s.applier.Observed(view.Slices, view.ResourceVersion)
		applied := r.applied(s, view, current)
		input = r.input(s, view, snapshots, s.current.Convert(view.Target.Desired(), applied, ports), ports)
		s.memory, s.decision = verdict.Decide(s.memory, input, now)
		tracepoint.Mark(tracepoint.Decision)
		if tracepoint.Enabled(r.Logger) {
			r.logDecision(key, input.Current, s.decision.Endpoints)
		}
		s.propagation.Observe(r.propagation, now, snapshots, input.Probes)
		order = r.orderOf(view, s.decision, current)
	} else {
		s.propagation = propagation.Tracker{}
		order = withdrawal(view, s.applier.Observed(view.Slices, view.ResourceVersion))
	}
	if r.DryRun == nil && s.slot.put(order, s.term.number, s.propagation.Causes()) {
		r.writes.Add(key)
	}

	if r.setProbes(key, s, view, input.Current) {
		r.decisions.Add(key) // other targets may probe the same keys: those have a status that may never change
	}
	if r.DryRun != nil {
		r.DryRun(r.preview(key, s, view, snapshots, input))
	}
	wake := verdict.Earliest(verdict.Earliest(s.decision.Wake, view.RecheckAt), r.publish(key, s, view, snapshots, input, now))
	if !wake.IsZero() {
		r.decisions.AddAfter(key, wake.Sub(now))
	}
	if view.State == targets.Gone {
		r.forget(key)
	}
}

// Decision returns the last decision about a target. It is for simulations, and must not be called during Decide.
func (r *Reconciler) Decision(key targets.Key) verdict.Decision {
	if s := r.states[key]; s != nil {
		return s.decision
	}
	return verdict.Decision{}
}

// startOver forgets what was known of an earlier Service of the same name.
func (r *Reconciler) startOver(s *state, uid types.UID, now time.Time) {
	if uid != s.uid {
		r.Reporter.SetActive(corev1.ObjectReference{UID: s.uid}, events.Current{Leading: s.term.number != 0}, now)
		s.uid, s.memory = uid, verdict.Memory{}
		s.propagation = propagation.Tracker{}
	}
}

// forget removes the state of a target that no longer exists for this writer. A write that is still in progress has
// it decided again.
func (r *Reconciler) forget(key targets.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.states, key)
	r.backoff.Forget(key)
}

// Write carries out the newest order of a target. It must not be called twice at a time for the same key.
func (r *Reconciler) Write(ctx context.Context, key targets.Key, now time.Time) {
	r.mu.Lock()
	s := r.states[key]
	r.mu.Unlock()
	if s == nil {
		return
	}
	order, wait := s.slot.take(now)
	if wait > 0 {
		r.writes.AddAfter(key, wait)
	}
	if order == nil || order.term != r.Lease.Term() { // the next term begins with a decision
		return
	}
	if !slices.Equal(s.applier.Observed(order.Current, ""), order.Current) { // decided while an earlier order was carried out
		s.slot.keepCauses(order.causes)
		r.decisions.Add(key)
		return
	}
	r.stepDown.writeStarts()
	plan, err := s.applier.Apply(ctx, order.Order)
	r.stepDown.writeEnds()
	if err != nil {
		s.slot.keepCauses(order.causes)
		r.handleFailure(key, s, err)
		return
	}
	changed, failedBefore := !plan.Empty(), r.backoff.NumRequeues(key) > 0
	r.backoff.Forget(key)
	if changed {
		r.propagation.ObserveWrite(order.causes, time.Now())
	}
	if changed || failedBefore { // else nothing is new
		// Waiting for the watch event instead would save a decision. But two of 47,000 simulated runs (seeds 1962 and
		// 15597) then changed a write back without news, and the CPU of a change stayed the same.
		r.decisions.Add(key)
	}
}

// handleFailure queues another decision about the target, and delays its next write if the error requires that.
func (r *Reconciler) handleFailure(key targets.Key, s *state, err error) {
	var later *applier.RetryLaterError
	var stale *applier.StaleError
	switch {
	case errors.As(err, &later) && later.Repair: // a change by this writer does not wait
		r.decisions.AddAfter(key, time.Until(later.At))
		return
	case errors.As(err, &later):
		s.slot.delay(later.At)
	case errors.As(err, &stale):
		r.Logger.Info("slice changed, deciding again", "service", key.String(), "slice", stale.Slice, "error", stale.Err)
	case errors.Is(err, applier.ErrNotLeader), errors.Is(err, election.ErrNotLeader), errors.Is(err, context.Canceled):
	default:
		at := time.Now().Add(r.backoff.When(key))
		s.slot.delay(at)
		r.Logger.Warn("slice write failed, retrying", "service", key.String(), "error", err, "at", at)
	}
	r.decisions.Add(key)
}
