package plan

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Print prints what would be written for each target, the verdict about each endpoint, and
// what guards hold. Its error names the rejected targets.
func Print(out io.Writer, results []Result) error {
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

func printPlan(b *strings.Builder, result *Result) {
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
	if result.PendingProbes > 0 {
		fmt.Fprintf(b, "\nProbes still pending after %s: %d. A running writer waits for them.\n", result.ProbeTimeout, result.PendingProbes)
	}
	for i, g := range result.Decision.Guards {
		if i == 0 {
			b.WriteString("\nheld by guards\n")
		}
		fmt.Fprintf(b, "  %s: %s\n", g.Rule, display.Sanitize(g.Message))
	}
	for i, warning := range result.Warnings {
		if i == 0 {
			b.WriteString("\nwarnings\n")
		}
		fmt.Fprintf(b, "  %s: %s\n", warning.Reason, display.Sanitize(warning.Note))
	}
}

func printWrites(b *strings.Builder, result *Result, plan planner.Plan) {
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
			fmt.Fprintf(b, "%s EndpointSlice %s\n%s\n", step.verb, slice.Name, history.FormatChanges(history.CompareSlices(current[slice.Name], desired, nil)))
		}
	}
}

// formatVerdicts returns a table of the endpoints with the rule that decided and its reason.
func formatVerdicts(all []verdict.Endpoint) string {
	if len(all) == 0 {
		return "no endpoint is listed or reported\n"
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ADDRESS\tVERDICT\tDESIRED\tRULE\tREASON")
	for _, e := range all {
		desired := "not listed"
		if e.Listed {
			desired = e.Conditions.String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", e.Address, e.Verdict, desired, e.Rule, display.Sanitize(e.Reason))
	}
	table.Flush() //nolint:errcheck // writes to memory
	return b.String()
}
