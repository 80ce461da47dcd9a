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
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/control"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// planTimeout is how long plan waits for the caches and for the initial sync of the sources.
const planTimeout = time.Minute

// runPlan makes one decision about each target, as a writer that takes over now would, and prints
// what that writer would write.
func runPlan(ctx context.Context, version string, inv command.Invocation[config.Config]) error {
	cfg := *inv.Config
	cfg.Store = "memory" // no Lease, no Events, and a client that sends no write
	notices := newNoticeHandler(inv.Err)
	w, err := buildWriter(&cfg, version, slog.New(notices))
	if err != nil {
		return settings.NewConfigError(err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, running := errgroup.WithContext(running)
	w.startInputs(running, g)
	fmt.Fprintf(inv.Err, "waiting up to %s for caches and inventories…\n", planTimeout)
	results, err := control.Rehearse(running, w.controllerConfig, control.Patience{Caches: planTimeout})
	stop()
	if err = errors.Join(notices.withLastNotice(err), g.Wait()); err != nil {
		return err
	}
	return printPlans(inv.Out, results)
}

// printPlans prints what would be written for each target, the verdict about each endpoint, and
// what guards hold. Its error names the rejected targets.
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
			rejected = append(rejected, fmt.Errorf("service %s is rejected, and nothing is added to its slices: %s", result.Key, result.View.Rejection.Message))
			continue
		}
		if printed++; printed > 1 {
			b.WriteString("\n")
		}
		printPlan(&b, result)
	}
	if printed == 0 && len(rejected) == 0 {
		b.WriteString("No targets. Label a Service slicefeed.dev/class or set TARGET_SERVICE_NAME.\n")
	}
	_, err := io.WriteString(out, b.String())
	return errors.Join(append(rejected, err)...)
}

func printPlan(b *strings.Builder, result *control.Act) {
	fmt.Fprintf(b, "Service %s\n\n", result.Key)
	plan := planner.Plan{}
	switch {
	case result.View.OptedOut:
		b.WriteString("Opted out: slices will be deleted.\n\n")
		plan.Delete = result.View.Slices
	case result.Decision.Write:
		plan = planner.Compute(result.Desired, result.View.Slices)
	}
	printWrites(b, result, plan)
	switch {
	case result.View.Paused:
		b.WriteString("paused by annotation slicefeed.dev/paused: nothing of this is written\n\n")
	case !result.Decision.Write && !result.View.OptedOut:
		b.WriteString("writes blocked by a guard, see below\n\n")
	case plan.Empty():
		b.WriteString("nothing to write\n\n")
	}
	if result.View.OptedOut {
		return
	}
	b.WriteString(formatVerdicts(result.Decision.Endpoints))
	if result.Unjudged > 0 {
		fmt.Fprintf(b, "\nProbes still pending after %s: %d. A running writer waits for them.\n", result.Probing, result.Unjudged)
	}
	for i, g := range result.Decision.Guards {
		if i == 0 {
			b.WriteString("\nheld by guards\n")
		}
		fmt.Fprintf(b, "  %s: %s\n", g.Rule, display.Sanitize(g.Message))
	}
	for i, warning := range result.Remarks {
		if i == 0 {
			b.WriteString("\nwarnings\n")
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
