package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/control"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// planPatience is how long plan waits for the caches and for the sources' first synced words.
const planPatience = time.Minute

// runPlan decides once on each target, as a writer would that takes over now, and prints what
// it would write.
func runPlan(ctx context.Context, version string, call command.Call[Config]) error {
	cfg := *call.Config
	cfg.Store = "memory" // without a Lease or Events, and with a client that sends no write
	seen := newNotices(call.Err)
	w, err := build(&cfg, version, slog.New(seen))
	if err != nil {
		return settings.Wrong(err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, running := errgroup.WithContext(running)
	w.watch(running, g)
	fmt.Fprintf(call.Err, "waiting for the caches and the inventories, for %s at most…\n", planPatience)
	acts, err := control.Rehearse(running, w.decides, control.Patience{Caches: planPatience})
	stop()
	if err = errors.Join(seen.because(err), g.Wait()); err != nil {
		return err
	}
	return printPlans(call.Out, acts)
}

// printPlans says of each target what would be written, each endpoint's verdict, and what is held
// back. Targets that are refused make an error, after all others.
func printPlans(out io.Writer, acts []control.Act) error {
	var b strings.Builder
	var refused []error
	shown := 0
	for i := range acts {
		a := &acts[i]
		if !a.View.Ours {
			continue
		}
		if a.View.Refusal != nil {
			refused = append(refused, fmt.Errorf("the Service %s is not served, and nothing is added to its slices: %s", a.Key, a.View.Refusal.Message))
			continue
		}
		if shown++; shown > 1 {
			b.WriteString("\n")
		}
		printPlan(&b, a)
	}
	if shown == 0 && len(refused) == 0 {
		b.WriteString("No Service is ours: label one with slicefeed.dev/class, or name one by TARGET_SERVICE_NAME.\n")
	}
	_, err := io.WriteString(out, b.String())
	return errors.Join(append(refused, err)...)
}

func printPlan(b *strings.Builder, a *control.Act) {
	fmt.Fprintf(b, "Service %s\n\n", a.Key)
	plan := planner.Plan{}
	switch {
	case a.View.Leaving:
		b.WriteString("It is none of our targets any more.\n\n")
		plan.Delete = a.View.Slices
	case a.Decision.Write:
		plan = planner.Make(a.Desired, a.View.Slices)
	}
	printWrites(b, a, plan)
	switch {
	case a.View.Paused:
		b.WriteString("paused by its annotation: nothing of this is written\n\n")
	case !a.Decision.Write && !a.View.Leaving:
		b.WriteString("nothing may be written, see below\n\n")
	case plan.Empty():
		b.WriteString("nothing to write\n\n")
	}
	if a.View.Leaving {
		return
	}
	b.WriteString(verdictTable(a.Decision.Endpoints))
	if a.Unjudged > 0 {
		fmt.Fprintf(b, "\nNot judged by a probe within %s: %d. A writer that runs waits for them.\n", a.Probing, a.Unjudged)
	}
	for i, g := range a.Decision.Guards {
		if i == 0 {
			b.WriteString("\nheld back\n")
		}
		fmt.Fprintf(b, "  %s: %s\n", g.Rule, display.Sanitize(g.Message))
	}
	for i, one := range a.Remarks {
		if i == 0 {
			b.WriteString("\nworth knowing\n")
		}
		fmt.Fprintf(b, "  %s: %s\n", one.Reason, display.Sanitize(one.Note))
	}
}

func printWrites(b *strings.Builder, a *control.Act, plan planner.Plan) {
	was := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range a.View.Slices {
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
			fmt.Fprintf(b, "%s EndpointSlice %s\n%s\n", step.verb, slice.Name, applier.Lines(applier.Diff(was[slice.Name], now)))
		}
	}
}
