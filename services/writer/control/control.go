package control

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/election"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// control is the loop of one target: when anything that a decision rests upon has changed,
// it decides anew, and while it leads it has the difference written. A write under way
// holds nothing up: what changes meanwhile is decided upon, and written next.
type control struct {
	*stages

	key     targets.Key
	changed chan struct{} // something that a decision rests upon has changed
	// sourceNames are the sources that the last decision depends on; nil: there was none.
	sourceNames atomic.Pointer[[]string]
	// decided is whether there was a decision, be it that there is nothing to decide.
	decided  atomic.Bool
	observer observer

	applier        *applier.Applier
	uid            types.UID // of the Service that all below is about
	memory         verdict.Memory
	members        map[string]*reported // of each source's last snapshot, in the verdict's words
	holding        holding              // of the slices, in the verdict's words
	probed         []prober.Request
	due            bool      // something has changed since the last write began
	writing        bool      // a write is under way
	nothing        bool      // and it had nothing to do; the write's own until it is over
	retryAt        time.Time // no write before that
	repairAt       time.Time // when to put right what others have done, which does not hold our own writes up
	failed         int       // writes that failed in a row
	term           term
	health         health
	stimuli        stimuli
	over           bool   // the target is none of ours any more
	pendingPublish func() // publishes the last decision; nil: done
}

// observer follows the decisions about all targets.
type observer interface {
	// onDecision receives each decision; the zero decision: there is none anymore.
	onDecision(targets.Key, verdict.Decision)
	// wakeUp makes it check the controls again.
	wakeUp()
}

func (s *stages) control(key targets.Key, of observer) *control {
	return &control{
		stages: s, key: key, changed: make(chan struct{}, 1), observer: of,
		applier: s.applier(), members: map[string]*reported{},
	}
}

// wakeUp makes the control decide again.
func (c *control) wakeUp() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// rests reports whether the control's decision rests upon what a source says.
func (c *control) rests(source string) bool {
	sourceNames := c.sourceNames.Load()
	return sourceNames == nil || slices.Contains(*sourceNames, source)
}

// Run decides until ctx is done or the target is over, and waits for the write that is under way.
func (c *control) Run(ctx context.Context) {
	written := make(chan error, 1)
	defer func() {
		if c.writing {
			<-written //nolint:errcheck // nobody decides on it any more
		}
		c.forget()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !c.over {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			c.due = true
		case <-timer.C:
			c.due = true
		case err := <-written:
			if c.wrote(err) {
				continue
			}
		}
		write, wake := c.step(time.Now())
		if write != nil {
			go func() { written <- c.write(ctx, write) }()
		}
		c.tell()
		if wake.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(wake))
		}
	}
}

func (c *control) write(ctx context.Context, write func(context.Context) error) error {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return write(ctx)
}

// forget lets go of what is kept of the target elsewhere.
func (c *control) forget() {
	c.prober.Set(c.key.String(), nil)
	c.metrics.forget(c.key)
	if c.over { // a writer that stops takes nothing away from those who are told
		c.board.Remove(c.key.Namespace, c.key.Name)
	}
	c.observer.onDecision(c.key, verdict.Decision{})
}

// step decides. It returns what is to be written now, if anything, and when to step
// again though nothing changes. Begin the write, then tell; how it ended is to be told by wrote.
func (c *control) step(now time.Time) (write func(context.Context) error, wake time.Time) {
	if c.term.turns(c.lease.Term(), now) {
		c.applier.StartTerm() // another one's writes may lie between
	}
	leading := c.term.leads()
	view := c.targets.Get(c.key)
	if !view.Synced {
		return nil, time.Time{}
	}
	if view.ServiceRef.UID != c.uid { // deleted, or created again: what we knew is of another Service
		c.reporter.SetActive(corev1.ObjectReference{UID: c.uid}, nil, leading, now)
		c.uid, c.memory = view.ServiceRef.UID, verdict.Memory{}
		c.stimuli.forget()
	}
	var warnings []events.Warning
	if !view.Relevant || view.OptedOut || view.Rejection != nil && !view.ProbesOnly {
		write = c.handleInactive(view)
	} else {
		write, wake, warnings = c.judge(view, now)
	}
	warnings = append(warnings, notices(view)...)
	wake = earliest(earliest(wake, view.RecheckAt), c.reporter.SetActive(view.ServiceRef, warnings, leading, now))
	if !leading || write == nil {
		c.stimuli.drop()
	}
	if !leading {
		return nil, wake
	}
	if c.repairAt.After(now) {
		wake = earliest(wake, c.repairAt)
	}
	if write == nil || c.writing || !c.due {
		return nil, wake
	}
	if c.retryAt.After(now) {
		return nil, earliest(wake, c.retryAt)
	}
	c.due, c.writing = false, true
	c.stimuli.sending()
	return write, wake
}

// tell lets others know of the decision that step has come to. It is called when the write that the
// decision led to is on its way: no endpoint waits for a metric.
func (c *control) tell() {
	if c.pendingPublish == nil {
		return
	}
	c.pendingPublish()
	c.pendingPublish = nil
	if !c.decided.Swap(true) {
		c.observer.wakeUp()
	}
}

// handleInactive returns what to write for a Service that is not managed: nothing, except the deletion of its
// slices when it opts out.
func (c *control) handleInactive(view targets.Resolution) func(context.Context) error {
	c.follow(prober.Spec{}, 0, nil, nil)
	c.sourceNames.Store(&[]string{})
	c.stimuli.forget()
	c.pendingPublish = func() {
		c.metrics.forget(c.key)
		if view.Rejection != nil || view.OptedOut && view.Paused {
			c.metrics.handleInactive(c.key, view.Paused, c.health.of(time.Now(), findProblems(view, verdict.Input{}, verdict.Decision{}, 0)))
			c.show(view, verdict.Input{}, verdict.Decision{})
		} else {
			c.health = health{}
			c.board.Remove(c.key.Namespace, c.key.Name)
		}
		c.observer.onDecision(c.key, verdict.Decision{})
	}
	c.over = !view.Relevant && !c.writing
	if !view.OptedOut || view.Paused {
		return nil
	}
	ours := c.applier.Observed(view.Slices, view.ResourceVersion)
	return func(ctx context.Context) error { return c.applier.Withdraw(ctx, view.ServiceRef, ours) }
}

// judge decides on the endpoints of a target. What is to be written is nil while nothing may be.
func (c *control) judge(view targets.Resolution, now time.Time) (write func(context.Context) error, wake time.Time, warnings []events.Warning) {
	desired := view.Target.Desired()
	current := c.applier.Observed(view.Slices, view.ResourceVersion)
	rejected, lists := view.Rejection != nil, current
	if !rejected { // what others did to the slices of a Service that is rejected stays
		lists = c.applier.LastApplied(view.ServiceRef, current)
	}
	held := c.holding.of(desired, lists)
	// Before any snapshot is read: a source that reports in between must wake this target.
	c.sourceNames.Store(&view.Target.Settings.Sources)
	snapshots := c.snapshots(view)
	in := verdict.Input{
		Sources: c.sourceInputs(view, snapshots),
		Probes:  c.probeStatuses(),
		Current: held,
		Limits:  limits(view.Target.Settings),

		Rejected:     rejected,
		LeadingSince: c.term.since,
	}
	var decision verdict.Decision
	c.memory, decision = verdict.Decide(c.memory, in, now)
	tracepoint.Mark(tracepoint.Decision)
	if tracepoint.Enabled(c.log) {
		c.logDecision(in.Current, decision.Endpoints)
	}

	c.follow(view.Target.Settings.Probe, view.Target.ProbePort, decision.Endpoints, in.Current)
	for _, name := range decision.NeedObservations {
		c.sources[name].ObserveNow()
	}
	c.stimuli.decided(c.metrics.propagation, now, snapshots, in.Probes)
	c.pendingPublish = func() {
		c.metrics.show(c.key, decision, rejected, view.Paused, c.health.of(now, findProblems(view, in, decision, c.failed)))
		c.show(view, in, decision)
		c.observer.onDecision(c.key, decision)
	}
	warnings = slices.Concat(asWarnings(decision.Guards), asResync(decision.Resync), c.targetWarnings(view))
	if decision.Write && !view.Paused {
		write = func(ctx context.Context) error {
			desired.Endpoints = listed(decision.Endpoints)
			order := applier.Order{
				Service: view.ServiceRef, Desired: desired, Current: current, Adjust: rejected,
				ReasonFor: func(address netip.Addr) string { return why(decision.Endpoints, address) },
			}
			plan, err := c.applier.Apply(ctx, order)
			c.nothing = plan.Empty() // nobody else has either until the write is over
			c.stimuli.wrote = !c.nothing
			return err
		}
	}
	return write, decision.Wake, warnings
}

// show lets others see the decision.
func (c *control) show(view targets.Resolution, in verdict.Input, decision verdict.Decision) {
	if c.board == nil {
		return
	}
	t := endpoints.Target{
		Namespace: c.key.Namespace, Service: c.key.Name, State: endpoints.Managed, Leading: c.term.leads() && !c.dryRun,
		Ports: view.Target.Ports, Slices: view.Slices, ManagedBy: view.Target.ManagedBy,
		Input: in, Decision: decision,
	}
	switch {
	case view.Rejection != nil:
		t.State, t.Reason, t.Message = endpoints.Rejected, view.Rejection.Reason, view.Rejection.Message
		t.FollowsProbes = view.ProbesOnly && !view.Paused
	case view.Paused:
		t.State = endpoints.Paused
	}
	t.Sources = c.snapshots(view)
	c.board.Put(t)
}

// snapshots are what the target's sources say.
func (c *control) snapshots(view targets.Resolution) (all []subscriber.Snapshot) {
	for _, name := range view.Target.Settings.Sources {
		if s, ours := c.sources[name]; ours {
			all = append(all, s.Snapshot())
		}
	}
	return all
}

// wrote takes in that the write under way has ended. Idle is that this is no reason to decide
// anew: there was nothing to write, as whenever the watch has told of a write of our own.
func (c *control) wrote(err error) (idle bool) {
	idle = err == nil && c.nothing && c.failed == 0
	c.writing, c.nothing = false, false
	c.due = c.learn(err) || c.due
	c.stimuli.answered(c.metrics.propagation, time.Now(), err)
	return idle && !c.due
}

// learn draws the lesson from how a write ended, and says whether it is due again.
func (c *control) learn(err error) bool {
	var later *applier.RetryLaterError
	var stale *applier.StaleError
	c.retryAt, c.repairAt = time.Time{}, time.Time{}
	switch {
	case err == nil:
		c.failed = 0
	case errors.As(err, &stale):
		c.log.Info("slice changed, deciding again", "service", c.key.String(), "slice", stale.Slice, "error", stale.Err)
	case errors.Is(err, election.ErrNotLeader), errors.Is(err, context.Canceled):
	case errors.As(err, &later) && later.Repair:
		c.repairAt = later.At
		return false
	case errors.As(err, &later):
		c.retryAt = later.At
	default:
		c.failed = min(c.failed+1, 4)
		c.retryAt = time.Now().Add(time.Second << (c.failed - 1)) // 1 s to 8 s
		c.log.Warn("slice write failed, retrying", "service", c.key.String(), "error", err, "at", c.retryAt)
	}
	return err != nil
}

// follow probes what a decision speaks of, save what the fence keeps out and what is gone from
// the slices too. What is to go and is still listed stays probed: its decision may rest upon its
// probe, and without one it would be decided the other way, probed again, and so on without end.
func (c *control) follow(spec prober.Spec, port uint16, judged []verdict.Endpoint, held []verdict.CurrentEndpoint) {
	if spec.Mode == prober.Off {
		judged = nil // nothing is probed, and nobody waits for a word
	}
	request := func(e *verdict.Endpoint) prober.Request {
		return prober.Request{Key: prober.Key{Address: e.Address, Port: port, Spec: spec}, Source: e.Source}
	}
	n, as := 0, true
	for e := range probed(judged, held) {
		as = as && n < len(c.probed) && c.probed[n] == request(e)
		n++
	}
	if as && n == len(c.probed) {
		return
	}
	requests := make([]prober.Request, 0, n)
	for e := range probed(judged, held) {
		requests = append(requests, request(e))
	}
	c.prober.Set(c.key.String(), requests)
	c.probed = requests
	c.wakeUp() // of what others have probed too there is a word already, which may never change
}

// probed are the endpoints to probe.
func probed(judged []verdict.Endpoint, held []verdict.CurrentEndpoint) iter.Seq[*verdict.Endpoint] {
	return func(yield func(*verdict.Endpoint) bool) {
		held := held
		for i := range judged {
			e := &judged[i]
			for len(held) > 0 && held[0].Address.Less(e.Address) {
				held = held[1:]
			}
			listed := len(held) > 0 && held[0].Address == e.Address
			if e.Rule != verdict.RuleAllowlist && (e.Verdict != verdict.Remove || listed) && !yield(e) {
				return
			}
		}
	}
}
