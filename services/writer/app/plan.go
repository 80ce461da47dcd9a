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

// planTimeout is how long plan waits for the caches and for the sources' first synced words.
const planTimeout = time.Minute

// runPlan decides once on each target, as a writer would that takes over now, and prints what
// it would write.
func runPlan(ctx context.Context, version string, inv command.Invocation[Config]) error {
	cfg := *inv.Config
	cfg.Store = "memory" // without a Lease or Events, and with a client that sends no write
	notices := newNoticeHandler(inv.Err)
	w, err := buildWriter(&cfg, version, slog.New(notices))
	if err != nil {
		return settings.NewConfigError(err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, running := errgroup.WithContext(running)
	w.startInputs(running, g)
	fmt.Fprintf(inv.Err, "waiting for the caches and the inventories, for %s at most…\n", planTimeout)
	results, err := control.Rehearse(running, w.controllerConfig, control.Patience{Caches: planTimeout})
	stop()
	if err = errors.Join(notices.withLastNotice(err), g.Wait()); err != nil {
		return err
	}
	return printPlans(inv.Out, results)
}

// printPlans says of each target what would be written, each endpoint's verdict, and what is held
// back. Targets that are refused make an error, after all others.
func printPlans(out io.Writer, results []control.Act) error {
	var b strings.Builder
	var rejected []error
	printed := 0
	for i := range results {
		result := &results[i]
		if !result.View.Relevant {
			continue
		}
		if result.View.Rejection != nil {
			rejected = append(rejected, fmt.Errorf("the Service %s is not served, and nothing is added to its slices: %s", result.Key, result.View.Rejection.Message))
			continue
		}
		if printed++; printed > 1 {
			b.WriteString("\n")
		}
		printPlan(&b, result)
	}
	if printed == 0 && len(rejected) == 0 {
		b.WriteString("No Service is ours: label one with slicefeed.dev/class, or name one by TARGET_SERVICE_NAME.\n")
	}
	_, err := io.WriteString(out, b.String())
	return errors.Join(append(rejected, err)...)
}

func printPlan(b *strings.Builder, result *control.Act) {
	fmt.Fprintf(b, "Service %s\n\n", result.Key)
	plan := planner.Plan{}
	switch {
	case result.View.OptedOut:
		b.WriteString("It is none of our targets any more.\n\n")
		plan.Delete = result.View.Slices
	case result.Decision.Write:
		plan = planner.Compute(result.Desired, result.View.Slices)
	}
	printWrites(b, result, plan)
	switch {
	case result.View.Paused:
		b.WriteString("paused by its annotation: nothing of this is written\n\n")
	case !result.Decision.Write && !result.View.OptedOut:
		b.WriteString("nothing may be written, see below\n\n")
	case plan.Empty():
		b.WriteString("nothing to write\n\n")
	}
	if result.View.OptedOut {
		return
	}
	b.WriteString(formatVerdicts(result.Decision.Endpoints))
	if result.Unjudged > 0 {
		fmt.Fprintf(b, "\nNot judged by a probe within %s: %d. A writer that runs waits for them.\n", result.Probing, result.Unjudged)
	}
	for i, g := range result.Decision.Guards {
		if i == 0 {
			b.WriteString("\nheld back\n")
		}
		fmt.Fprintf(b, "  %s: %s\n", g.Rule, display.Sanitize(g.Message))
	}
	for i, warning := range result.Remarks {
		if i == 0 {
			b.WriteString("\nworth knowing\n")
		}
		fmt.Fprintf(b, "  %s: %s\n", warning.Reason, display.Sanitize(warning.Note))
	}
}

func printWrites(b *strings.Builder, result *control.Act, plan planner.Plan) {
	current := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range result.View.Slices {
		current[slice.Name] = slice
	}
	for _, step := range []struct {
		verb   string
		slices []*discoveryv1.EndpointSlice
	}{{"create", plan.Create}, {"update", plan.Update}, {"delete", plan.Delete}} {
		for _, slice := range step.slices {
			desired := slice
			if step.verb == "delete" {
				desired = nil
			}
			fmt.Fprintf(b, "%s EndpointSlice %s\n%s\n", step.verb, slice.Name, applier.Lines(applier.Diff(current[slice.Name], desired)))
		}
	}
}
