package app

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// control is the loop of one target: when anything that a decision rests upon has changed,
// it decides anew, and while it leads it has the difference written. A write under way
// holds nothing up: what changes meanwhile is decided upon, and written next.
type control struct {
	spec    targets.Spec
	probe   prober.Spec
	limits  verdict.Limits
	cidrs   []netip.Prefix // of the fence
	source  *subscriber.Subscriber
	targets *targets.Targets
	prober  *prober.Prober
	lease   lease
	applier *applier.Applier
	told    *applier.Reporter
	metrics *metrics
	log     *slog.Logger

	memory  verdict.Memory
	began   map[verdict.Rule]time.Time // since when a guard that may be a mere flap acts
	members members                    // of the last snapshot, in the verdict's words
	probed  []prober.Key
	due     bool      // something has changed since the last Apply began
	writing bool      // an Apply is under way
	notTill time.Time // no Apply before that
	failed  int       // Applies that failed in a row
	since   time.Time // since when we lead; zero: we do not

	surrender surrender
}

// lease says who writes.
type lease interface {
	Leading() bool
	Changed() <-chan struct{}
	Release()
}

// name is what the target's probes go by.
func (c *control) name() string { return c.spec.Namespace + "/" + c.spec.Service }

// Run decides until ctx is done, and waits for the write that is under way.
func (c *control) Run(ctx context.Context) error {
	written := make(chan error, 1)
	defer func() {
		if c.writing {
			<-written //nolint:errcheck // nobody decides on it any more
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.source.Changed():
			c.due = true
		case <-c.targets.Changed():
			c.due = true
		case <-c.prober.Changed():
			c.prober.Take()
			c.due = true
		case <-c.lease.Changed():
			c.due = true
		case <-timer.C:
			c.due = true
		case err := <-written:
			c.writing = false
			c.due = c.due || err != nil
			c.learn(err)
		}
		write, wake := c.step(time.Now())
		if write != nil {
			c.writing = true
			go func() { written <- write(ctx) }()
		}
		if wake.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(wake))
		}
	}
}

// step decides. It returns what is to be written now, if anything, and when to step
// again though nothing changes.
func (c *control) step(now time.Time) (write func(context.Context) error, wake time.Time) {
	leading := c.lease.Leading()
	if leading == c.since.IsZero() {
		c.since = time.Time{}
		if leading {
			c.since = now
		}
		c.applier.Forget() // another one's writes may lie between
	}
	view := c.targets.Get()
	if !view.Synced {
		return nil, time.Time{}
	}
	if view.Refusal != nil {
		c.follow(0, nil)
		c.metrics.refused()
		if leading {
			c.told.Now(view.Service, []applier.Warning{{Reason: view.Refusal.Reason, Action: "Refuse", Note: view.Refusal.Message}})
		}
		return nil, time.Time{}
	}

	desired := c.spec.Desired(view.Target)
	current := c.applier.Current(view.Slices, view.ResourceVersion)
	held := planner.Held(desired, c.applier.Held(view.Service, current))
	snapshot := c.source.Snapshot()
	var decision verdict.Decision
	c.memory, decision = verdict.Decide(c.memory, verdict.Input{
		Sources: []verdict.Source{c.witness(snapshot, view.Target)},
		Probes:  c.words(),
		Held:    heldAs(held),
		Limits:  c.limits,

		LeadingSince: c.since,
	}, now)

	c.follow(view.Target.ProbePort, decision.Endpoints)
	if len(decision.NeedObservations) > 0 {
		c.source.ObserveNow()
	}
	c.metrics.show(decision)
	wake = decision.Wake
	if !leading {
		return nil, wake
	}
	guards, later := c.lasting(decision.Guards, now)
	wake = sooner(wake, later)
	c.told.Now(view.Service, slices.Concat(warnings(guards), neighbours(view.Target), otherPorts(snapshot, view.Target)))
	gives, later := c.surrender.due([]verdict.Decision{decision}, c.since, now)
	wake = sooner(wake, later)
	if gives && !c.writing {
		c.surrender.done(now)
		c.log.Warn("no probe passes any more: the Lease is given up, so that another writer's probes judge", "since", decision.BlindSince)
		c.lease.Release()
		return nil, wake
	}
	if !decision.Write || c.writing || !c.due {
		return nil, wake
	}
	if c.notTill.After(now) {
		return nil, sooner(wake, c.notTill)
	}
	c.due = false
	desired.Endpoints = listed(decision.Endpoints)
	return func(ctx context.Context) error { return c.apply(ctx, view.Service, desired, current) }, wake
}

// flap is how long a source may be silent before people are told.
const flap = 5 * time.Second

// lasting returns the guards that are worth an Event. Every start and every reconnection
// begins with a source that is not believed for a moment: that is told only if it lasts,
// and later is when to look again.
func (c *control) lasting(guards []verdict.Guard, now time.Time) (lasting []verdict.Guard, later time.Time) {
	began := map[verdict.Rule]time.Time{}
	for _, g := range guards {
		if g.Rule == verdict.RuleGate || g.Rule == verdict.RuleTrust {
			since, known := c.began[g.Rule]
			if !known {
				since = now
			}
			began[g.Rule] = since
			if until := since.Add(flap); until.After(now) {
				later = sooner(later, until)
				continue
			}
		}
		lasting = append(lasting, g)
	}
	c.began = began
	return lasting, later
}

func (c *control) apply(ctx context.Context, service corev1.ObjectReference, desired planner.Desired, current []*discoveryv1.EndpointSlice) error {
	_, err := c.applier.Apply(ctx, service, desired, current)
	return err
}

// learn draws the lesson from how a write ended.
func (c *control) learn(err error) {
	var later *applier.Later
	var stale *applier.Stale
	c.notTill = time.Time{}
	switch {
	case err == nil:
		c.failed = 0
	case errors.As(err, &stale):
		c.log.Info("slice was changed meanwhile, deciding again", "slice", stale.Slice, "error", stale.Err)
	case errors.Is(err, applier.ErrNotLeading), errors.Is(err, context.Canceled):
	case errors.As(err, &later):
		c.notTill = later.At
	default:
		c.failed = min(c.failed+1, 6)
		c.notTill = time.Now().Add(time.Second << (c.failed - 1)) // 1 s to 32 s
		c.log.Warn("slices not written, trying again", "target", c.name(), "error", err, "at", c.notTill)
	}
}

// follow probes what a decision speaks of, save what the fence keeps out and what is gone.
func (c *control) follow(port uint16, endpoints []verdict.Endpoint) {
	keys := make([]prober.Key, 0, len(endpoints))
	for _, e := range endpoints {
		if e.Rule != verdict.RuleFence && e.Verdict != verdict.Gone {
			keys = append(keys, prober.Key{Address: e.Address, Port: port, Spec: c.probe})
		}
	}
	if !slices.Equal(keys, c.probed) {
		c.prober.Set(c.name(), keys)
		c.probed = keys
	}
}
