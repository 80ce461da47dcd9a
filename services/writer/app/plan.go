package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/journal"
	"github.com/slicefeed/slicefeed/services/internal/prose"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// planPatience is how long plan waits for the caches and for the sources' first synced words.
const planPatience = time.Minute

// runPlan decides once on each target, as a writer would that takes over now, and prints what
// it would write.
func runPlan(ctx context.Context, version string, call command.Call[Config]) error {
	cfg := *call.Config
	cfg.Store = "memory" // without a Lease or Events, and with a client that sends no write
	w, err := build(&cfg, version, journal.New(call.Err, slog.LevelWarn))
	if err != nil {
		return settings.Wrong(err)
	}
	r := &rehearsal{stages: w.stages, patience: planPatience, probing: judgedWithin}
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, running := errgroup.WithContext(running)
	w.watch(running, g)
	err = r.decide(running)
	stop()
	if err = errors.Join(err, g.Wait()); err != nil {
		return err
	}
	return r.print(call.Out)
}

// rehearsal is one decision on each target, by controls that neither lead nor run.
type rehearsal struct {
	*stages

	patience time.Duration
	probing  func(prober.Spec) time.Duration // how long its first word is waited for

	acts map[targets.Key]*act
}

// nobody follows what is only rehearsed.
type nobody struct{}

func (nobody) heard(targets.Key, verdict.Decision) {}
func (nobody) stir()                               {}

// act is the rehearsal of one target.
type act struct {
	*control

	view     targets.View
	desired  planner.Desired
	decision verdict.Decision
	unjudged int // endpoints that no probe has judged in time
}

// judgedWithin is how long the first word on a backend takes at most: three probes that
// fail, each as late as it can be.
func judgedWithin(spec prober.Spec) time.Duration {
	const failures = 3
	return min(failures*spec.Interval+spec.Timeout+time.Second, time.Minute)
}

// decide waits for all that the decisions rest upon, and makes them.
func (r *rehearsal) decide(ctx context.Context) error {
	r.acts = map[targets.Key]*act{}
	changed := make(chan string)
	watching, stop := context.WithCancel(ctx)
	var relays sync.WaitGroup
	defer relays.Wait()
	defer stop()
	for _, s := range r.sources {
		relays.Go(func() { relay(watching, s, changed) })
	}
	late := time.NewTimer(r.patience)
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
			r.prober.Take()
		case <-late.C:
			if known {
				return nil
			}
			return fmt.Errorf("%s within %s: slicefeed-writer preflight says why", unheard, r.patience)
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
	for _, key := range r.targets.Take() {
		if r.acts[key] == nil {
			r.acts[key] = &act{control: r.control(key, nobody{})}
		}
	}
	for _, key := range r.keys() {
		a := r.acts[key]
		a.view = r.targets.Get(key)
		if !a.serves() {
			continue
		}
		for _, name := range a.view.Target.Settings.Sources {
			if s := r.sources[name].Snapshot(); !s.SyncedEpoch {
				return fmt.Sprintf("the inventory of source %s told no set (%s)", name, mute(s))
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
		n += a.unjudged
	}
	return n
}

// longest is how long the first words of all probes may take.
func (r *rehearsal) longest() (most time.Duration) {
	for _, a := range r.acts {
		if a.serves() {
			most = max(most, r.probing(a.view.Target.Settings.Probe))
		}
	}
	return most
}

// serves is whether there is anything to decide.
func (a *act) serves() bool { return a.view.Ours && !a.view.Leaving && a.view.Refusal == nil }

// step is control.judge without a write, and with no memory of earlier decisions, as after
// a start.
func (a *act) step(now time.Time) {
	settings := a.view.Target.Settings
	a.desired = a.view.Target.Desired()
	held := heldAs(planner.Held(a.desired, a.view.Slices))
	for range 3 { // what is probed follows from a decision, and the decision from that
		words, probed := a.words(), a.probed
		_, a.decision = verdict.Decide(verdict.Memory{}, verdict.Input{
			Sources: a.witnesses(a.view),
			Probes:  words,
			Held:    held,
			Limits:  limits(settings),

			LeadingSince: now,
		}, now)
		a.follow(settings.Probe, a.view.Target.ProbePort, a.decision.Endpoints)
		a.unjudged = 0
		for _, key := range a.probed { // as the decision has it: a probe may have passed meanwhile
			if settings.Probe.Mode != prober.Off && words[key.Address].Health == verdict.Unjudged {
				a.unjudged++
			}
		}
		if slices.Equal(probed, a.probed) {
			break
		}
	}
	a.desired.Endpoints = listed(a.decision.Endpoints)
}

// print says of each target what would be written, each endpoint's verdict, and what is held
// back. Targets that are refused make an error, after all others.
func (r *rehearsal) print(out io.Writer) error {
	var b strings.Builder
	var refused []error
	shown := 0
	for _, key := range r.keys() {
		a := r.acts[key]
		if !a.view.Ours {
			continue
		}
		if a.view.Refusal != nil {
			refused = append(refused, fmt.Errorf("the Service %s is not served, and its slices stay as they are: %s", key, a.view.Refusal.Message))
			continue
		}
		if shown++; shown > 1 {
			b.WriteString("\n")
		}
		a.print(&b, r.probing)
	}
	if shown == 0 && len(refused) == 0 {
		b.WriteString("No Service is ours: label one with slicefeed.dev/class, or name one by TARGET_SERVICE_NAME.\n")
	}
	_, err := io.WriteString(out, b.String())
	return errors.Join(append(refused, err)...)
}

func (a *act) print(b *strings.Builder, probing func(prober.Spec) time.Duration) {
	fmt.Fprintf(b, "Service %s\n\n", a.key)
	plan := planner.Plan{}
	switch {
	case a.view.Leaving:
		b.WriteString("It is none of our targets any more.\n\n")
		plan.Delete = a.view.Slices
	case a.decision.Write:
		plan = planner.Make(a.desired, a.view.Slices)
	}
	a.printPlan(b, plan)
	switch {
	case a.view.Paused:
		b.WriteString("paused by its annotation: nothing of this is written\n\n")
	case !a.decision.Write && !a.view.Leaving:
		b.WriteString("nothing may be written, see below\n\n")
	case plan.Empty():
		b.WriteString("nothing to write\n\n")
	}
	if a.view.Leaving {
		return
	}
	b.WriteString(verdictTable(a.decision.Endpoints))
	if a.unjudged > 0 {
		fmt.Fprintf(b, "\nNot judged by a probe within %s: %d. A writer that runs waits for them.\n", probing(a.view.Target.Settings.Probe), a.unjudged)
	}
	for i, g := range a.decision.Guards {
		if i == 0 {
			b.WriteString("\nheld back\n")
		}
		fmt.Fprintf(b, "  %s: %s\n", g.Rule, prose.Sane(g.Message))
	}
	for i, one := range a.remarks(a.view) {
		if i == 0 {
			b.WriteString("\nworth knowing\n")
		}
		fmt.Fprintf(b, "  %s: %s\n", one.Reason, prose.Sane(one.Note))
	}
}

func (a *act) printPlan(b *strings.Builder, plan planner.Plan) {
	was := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range a.view.Slices {
		was[slice.Name] = slice
	}
	for _, step := range []struct {
		verb   string
		slices []*discoveryv1.EndpointSlice
	}{{"create", plan.Create}, {"update", plan.Update}, {"delete", plan.Delete}} {
		for _, slice := range step.slices {
			now := slice
			if step.verb == "delete" {
				now = nil
			}
			fmt.Fprintf(b, "%s EndpointSlice %s\n%s\n", step.verb, slice.Name, sliceDiff(was[slice.Name], now))
		}
	}
}
