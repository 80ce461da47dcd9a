package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/journal"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// planPatience is how long plan waits for the caches and for the source's first synced word.
const planPatience = time.Minute

// runPlan decides once, as a writer would that takes over now, and prints what it would write.
func runPlan(ctx context.Context, version string, call command.Call[Config]) error {
	cfg := *call.Config
	cfg.Store = "memory" // without a Lease or Events, and with a client that sends no write
	w, err := build(&cfg, version, journal.New(call.Err, slog.LevelWarn))
	if err != nil {
		return fmt.Errorf("%w:\n- %w", settings.ErrConfiguration, err)
	}
	defer w.conn.Close() //nolint:errcheck // all that it can say is that it is closed
	r := &rehearsal{control: w.control, patience: planPatience, probing: judgedWithin(w.control.probe)}
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, running := errgroup.WithContext(running)
	for _, run := range []func(context.Context) error{w.link.Run, w.source.Run, w.targets.Run, w.prober.Run} {
		g.Go(func() error { return run(running) })
	}
	err = r.decide(running)
	stop()
	if err = errors.Join(err, g.Wait()); err != nil {
		return err
	}
	return r.print(call.Out)
}

// rehearsal is one decision of a control that neither leads nor runs.
type rehearsal struct {
	*control

	patience, probing time.Duration

	view     targets.View
	snapshot subscriber.Snapshot
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

// decide waits for all that a decision rests upon, and makes it.
func (r *rehearsal) decide(ctx context.Context) error {
	late := time.NewTimer(r.patience)
	defer late.Stop()
	for known := false; ; {
		if err := r.step(time.Now()); err != nil {
			return err
		}
		if now := r.known(); now && !known { // from now on it is the probes that are waited for
			known = true
			late.Reset(r.probing)
		}
		if known && r.unjudged == 0 {
			return nil
		}
		select {
		case <-r.targets.Changed():
		case <-r.source.Changed():
		case <-r.prober.Changed():
			r.prober.Take()
		case <-late.C:
			if known {
				return nil
			}
			return r.missing()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// known is whether both clusters were heard.
func (r *rehearsal) known() bool { return r.view.Synced && r.snapshot.SyncedEpoch }

// missing says who was not heard.
func (r *rehearsal) missing() error {
	if !r.view.Synced {
		return fmt.Errorf("the Services and EndpointSlices of the consuming cluster were not read within %s: slicefeed-writer preflight says why", r.patience)
	}
	return fmt.Errorf("the inventory told no set within %s (%s): slicefeed-writer preflight says why", r.patience, mute(r.snapshot))
}

// step is control.step without a write: with no memory of earlier decisions, as after a start.
func (r *rehearsal) step(now time.Time) error {
	r.view, r.snapshot = r.targets.Get(), r.source.Snapshot()
	if !r.view.Synced {
		return nil
	}
	if r.view.Refusal != nil {
		return fmt.Errorf("the Service %s is not served, and its slices stay as they are: %s", r.name(), r.view.Refusal.Message)
	}
	r.desired = r.spec.Desired(r.view.Target)
	held := heldAs(planner.Held(r.desired, r.view.Slices))
	for range 3 { // what is probed follows from a decision, and the decision from that
		words, probed := r.words(), r.probed
		_, r.decision = verdict.Decide(verdict.Memory{}, verdict.Input{
			Sources: []verdict.Source{r.witness(r.snapshot, r.view.Target)},
			Probes:  words,
			Held:    held,
			Limits:  r.limits,

			LeadingSince: now,
		}, now)
		r.follow(r.view.Target.ProbePort, r.decision.Endpoints)
		r.unjudged = 0
		for _, key := range r.probed { // as the decision has it: a probe may have passed meanwhile
			if r.limits.Probing && words[key.Address].Health == verdict.Unjudged {
				r.unjudged++
			}
		}
		if slices.Equal(probed, r.probed) {
			break
		}
	}
	r.desired.Endpoints = listed(r.decision.Endpoints)
	return nil
}

// print says what would be written, each endpoint's verdict, and what is held back.
func (r *rehearsal) print(out io.Writer) error {
	var b strings.Builder
	plan := planner.Plan{}
	if r.decision.Write {
		plan = planner.Make(r.desired, r.view.Slices)
	}
	fmt.Fprintf(&b, "Service %s\n\n", r.name())
	was := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range r.view.Slices {
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
			fmt.Fprintf(&b, "%s EndpointSlice %s\n%s\n", step.verb, slice.Name, sliceDiff(was[slice.Name], now))
		}
	}
	switch {
	case !r.decision.Write:
		b.WriteString("nothing may be written, see below\n\n")
	case plan.Empty():
		b.WriteString("nothing to write\n\n")
	}
	b.WriteString(verdictTable(r.decision.Endpoints))
	if r.unjudged > 0 {
		fmt.Fprintf(&b, "\nNot judged by a probe within %s: %d. A writer that runs waits for them.\n", r.probing, r.unjudged)
	}
	for i, g := range r.decision.Guards {
		if i == 0 {
			b.WriteString("\nheld back\n")
		}
		fmt.Fprintf(&b, "  %s: %s\n", g.Rule, printable(g.Message))
	}
	for i, one := range slices.Concat(neighbours(r.view.Target), otherPorts(r.snapshot, r.view.Target)) {
		if i == 0 {
			b.WriteString("\nworth knowing\n")
		}
		fmt.Fprintf(&b, "  %s: %s\n", one.Reason, printable(one.Note))
	}
	_, err := io.WriteString(out, b.String())
	return err
}
