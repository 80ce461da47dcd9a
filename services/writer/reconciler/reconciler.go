// Package reconciler keeps the slices of each target as its sources, its probes and its Service want them. Decide
// takes one decision about a target, Write carries out its newest order; each has a workqueue. What changed adds the
// targets that depend on it to the queue of decisions.
//
// It guarantees that a change wakes the targets that it concerns and no others, that no write delays a decision, that
// a write carries out the newest order, and that the Lease is handed over between writes. It does not decide, plan or
// write: packages verdict, planner and applier do.
package reconciler

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Config has the stages that a Reconciler calls. The caller runs them.
type Config struct {
	Sources   []Source
	Targets   Targets
	Prober    Prober
	Lease     Lease
	Limits    verdict.Limits    // of all targets: what their settings cannot change
	Zones     map[string]string // from zones of the secured clusters to zones here; others are not written
	Reporter  *events.Reporter
	Endpoints *endpoints.Store        // nil: decisions are not published
	Applier   func() *applier.Applier // returns a new one, for a target

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
}

// Feeds receives the reports of one inventory: about its one set of nodes, which is the Service "", or about Services
// that it exports.
type Feeds interface {
	// Use sets the Service that a target uses, as namespace/name, and returns what is reported about it. The reports are
	// received while a target uses it. Leave ends that.
	Use(target, service string) subscriber.Snapshot
	Leave(target string)
	TakeChanged() map[string]struct{} // targets whose snapshots have changed since the last call
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
	TakeChanged() map[string]struct{} // targets with a status that changed since the last call
	Changed() <-chan struct{}         // TakeChanged may return some; one reader
}

// Lease decides which writer writes.
type Lease interface {
	LeadingSince() time.Time  // when this writer's current term began; zero: it does not lead
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
	propagation propagation
	decisions   Queue
	writes      Queue
	backoff     workqueue.TypedRateLimiter[targets.Key] // of writes
	stepDown    stepDown
	startup     startup

	mu     sync.Mutex
	states map[targets.Key]*state
}

// state is what a Reconciler knows about one target. Decide owns all that is not safe for concurrent use.
type state struct {
	key     targets.Key
	applier *applier.Applier
	pending pending
	version string // how recent the last view was

	uid          types.UID // of the Service that the rest is about
	leadingSince time.Time // when the term of the last decision began; zero: another writer led
	memory       verdict.Memory
	basis        basis
	decision     verdict.Decision
	reports      map[string]*chosenReport // by source
	current      currentEndpoints
	probed       []probe.Request
	health       endpoints.Health
}

// basis is what the last decision about a target was taken on.
type basis struct {
	view      targets.Resolution
	snapshots []subscriber.Snapshot
	input     verdict.Input // zero: nothing is to be decided
}

// New returns a Reconciler. Its owner calls Decide and Write for the keys in the two queues.
func New(cfg Config, decisions, writes Queue) *Reconciler {
	r := &Reconciler{
		Config:      cfg,
		sources:     map[string]Source{},
		propagation: newPropagation(cfg.Registerer),
		decisions:   decisions,
		writes:      writes,
		backoff:     workqueue.NewTypedItemExponentialFailureRateLimiter[targets.Key](minRetryDelay, maxRetryDelay),
		stepDown:    stepDown{probes: map[targets.Key]verdict.Decision{}},
		startup:     startup{undecided: map[targets.Key]struct{}{}},
		states:      map[targets.Key]*state{},
	}
	for _, source := range cfg.Sources {
		r.sources[source.Name] = source
	}
	return r
}

// state returns the state of a target. It creates one if there is none.
func (r *Reconciler) state(key targets.Key) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.states[key]
	if s == nil {
		s = &state{key: key, applier: r.Applier(), reports: map[string]*chosenReport{}}
		r.states[key] = s
	}
	return s
}

// Decide takes a decision about a target and orders what has to be written. It must not be called twice at a time for
// the same key.
func (r *Reconciler) Decide(key targets.Key, now time.Time) {
	s := r.state(key)
	before := s.leadingSince
	s.leadingSince = r.Lease.LeadingSince()
	view := r.Targets.Get(key, s.leadingSince)
	// Another leader may have written in between, a person edits the slices during a pause, or etcd was restored.
	if !s.leadingSince.Equal(before) || view.Settings.Paused || applier.IsNewer(s.version, view.ResourceVersion) {
		s.applier.StartTerm()
	}
	if s.version = view.ResourceVersion; view.State == targets.Unknown {
		return
	}
	r.startOver(s, view.Owner.UID, now)
	last := s.basis
	s.basis, s.decision = basis{view: view, snapshots: r.snapshots(key, &view)}, verdict.Decision{}
	current := s.applier.Observed(view.Slices, view.ResourceVersion)
	if view.Active() {
		s.basis.input = r.input(s, current)
		s.memory, s.decision = verdict.Decide(s.memory, s.basis.input, now)
		tracepoint.Mark(tracepoint.Decision)
		if tracepoint.Enabled(r.Logger) {
			r.logDecision(s)
		}
	}
	found := newCauses(&last, &s.basis)
	r.propagation.observe(found, stageDecided, now)
	if r.DryRun == nil && s.pending.put(r.orderOf(s, current), s.leadingSince, found) {
		r.writes.Add(key)
	}

	if r.setProbes(s) {
		r.decisions.Add(key) // other targets may probe the same keys: those have a status that may never change
	}
	if r.DryRun != nil {
		r.DryRun(r.preview(s))
	}
	wake := verdict.Earliest(verdict.Earliest(s.decision.Wake, view.RecheckAt), r.publish(s, now))
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
		r.Reporter.SetActive(corev1.ObjectReference{UID: s.uid}, events.Current{Leading: !s.leadingSince.IsZero()}, now)
		s.uid, s.memory, s.basis = uid, verdict.Memory{}, basis{}
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
