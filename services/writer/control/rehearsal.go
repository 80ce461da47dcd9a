package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Act is what would be done about one target by a writer that takes over now.
type Act struct {
	Key      targets.Key
	View     targets.Resolution // that it rests upon
	Desired  planner.Desired    // for a target that is served, as the next two
	Decision verdict.Decision   // with no memory of earlier ones, as after a start
	Remarks  []events.Warning

	Unjudged int           // endpoints that no probe has judged in time
	Probing  time.Duration // for how long their first words were waited for
}

// Patience is how long a rehearsal waits.
type Patience struct {
	Caches time.Duration                   // for the caches, and for the sources' first synced words
	Probes func(prober.Spec) time.Duration // for a probe's first word; nil: as long as it may take
}

// Rehearse decides once on each target, by the name, and writes nothing. The stages of cfg must
// be running; its Lease, Applier and Board are not asked.
func Rehearse(ctx context.Context, cfg Config, patience Patience) ([]Act, error) {
	if patience.Probes == nil {
		patience.Probes = judgedWithin
	}
	cfg.Applier = func() *applier.Applier { return nil }
	r := &rehearsal{stages: newStages(cfg), patience: patience, acts: map[targets.Key]*act{}}
	if err := r.decide(ctx); err != nil {
		return nil, err
	}
	var all []Act
	for _, key := range r.keys() {
		a := r.acts[key]
		a.Key = key
		if a.serves() {
			a.Remarks, a.Probing = a.remarks(a.View), patience.Probes(a.View.Target.Settings.Probe)
		}
		all = append(all, a.Act)
	}
	return all, nil
}

// rehearsal is one decision on each target, by controls that neither lead nor run.
type rehearsal struct {
	*stages

	patience Patience
	acts     map[targets.Key]*act
}

// nobody follows what is only rehearsed.
type nobody struct{}

func (nobody) heard(targets.Key, verdict.Decision) {}
func (nobody) stir()                               {}

// act is an Act, and the control that makes it.
type act struct {
	*control
	Act
}

// judgedWithin is how long the first word on a backend takes at most: three probes that
// fail, each as late as it can be.
func judgedWithin(spec prober.Spec) time.Duration {
	const failures = 3
	return min(failures*spec.Interval+spec.Timeout+time.Second, time.Minute)
}

// decide waits for all that the decisions rest upon, and makes them.
func (r *rehearsal) decide(ctx context.Context) error {
	changed := make(chan string)
	watching, stop := context.WithCancel(ctx)
	var relays sync.WaitGroup
	defer relays.Wait()
	defer stop()
	for _, s := range r.sources {
		relays.Go(func() { relay(watching, s, changed) })
	}
	late := time.NewTimer(r.patience.Caches)
	defer late.Stop()
	for known := false; ; {
		unheard := r.step(time.Now())
		if unheard == "" && !known { // from now on it is the probes that are waited for
			known = true
			late.Reset(r.longest())
		}
		if known && r.unjudged() == 0 {
			return nil
		}
		select {
		case <-r.targets.Changed():
		case <-changed:
		case <-r.prober.Changed():
			r.prober.TakeChanged()
		case <-late.C:
			if known {
				return nil
			}
			return fmt.Errorf("%s within %s; run slicefeed-writer preflight to find out why", unheard, r.patience.Caches)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// step decides on every target. It returns who has not been heard yet, empty: all have.
func (r *rehearsal) step(now time.Time) (unheard string) {
	if err := r.targets.Synced(); err != nil {
		return err.Error()
	}
	for _, key := range r.targets.TakeChanged() {
		if r.acts[key] == nil {
			r.acts[key] = &act{control: r.control(key, nobody{})}
		}
	}
	for _, key := range r.keys() {
		a := r.acts[key]
		a.View = r.targets.Get(key)
		if !a.serves() {
			continue
		}
		for _, name := range a.View.Target.Settings.Sources {
			if s := r.sources[name].Snapshot(); !s.SyncedInStream {
				return fmt.Sprintf("source %s did not sync (%s)", name, s.NotSyncedReason())
			}
		}
		a.step(now)
	}
	return ""
}

func (r *rehearsal) keys() []targets.Key {
	return slices.SortedFunc(maps.Keys(r.acts), func(a, b targets.Key) int { return strings.Compare(a.String(), b.String()) })
}

func (r *rehearsal) unjudged() (n int) {
	for _, a := range r.acts {
		n += a.Unjudged
	}
	return n
}

// longest is how long the first words of all probes may take.
func (r *rehearsal) longest() (most time.Duration) {
	for _, a := range r.acts {
		if a.serves() {
			most = max(most, r.patience.Probes(a.View.Target.Settings.Probe))
		}
	}
	return most
}

// serves is whether there is anything to decide.
func (a *act) serves() bool { return a.View.Relevant && !a.View.OptedOut && a.View.Rejection == nil }

// step is control.judge without a write, and with no memory of earlier decisions, as after
// a start.
func (a *act) step(now time.Time) {
	settings := a.View.Target.Settings
	a.Desired = a.View.Target.Desired()
	held := heldAs(planner.CurrentEndpoints(a.Desired, a.View.Slices))
	for range 3 { // what is probed follows from a decision, and the decision from that
		words, probed := a.words(), a.probed
		_, a.Decision = verdict.Decide(verdict.Memory{}, verdict.Input{
			Sources: a.witnesses(a.View, a.snapshots(a.View)),
			Probes:  words,
			Held:    held,
			Limits:  limits(settings),

			LeadingSince: now,
		}, now)
		a.follow(settings.Probe, a.View.Target.ProbePort, a.Decision.Endpoints, held)
		a.Unjudged = 0
		for _, request := range a.probed { // as the decision has it: a probe may have passed meanwhile
			if settings.Probe.Mode != prober.Off && words[request.Key.Address].Health == verdict.Unjudged {
				a.Unjudged++
			}
		}
		if slices.Equal(probed, a.probed) {
			break
		}
	}
	a.Desired.Endpoints = listed(a.Decision.Endpoints)
}
