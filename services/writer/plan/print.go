package plan

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
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
	printWrites(b, "create", plan.Create, result.View.Slices)
	printWrites(b, "update", plan.Update, result.View.Slices)
	printWrites(b, "delete", plan.Delete, result.View.Slices)
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
	printVerdicts(b, result.Decision.Endpoints)
	if result.PendingProbes > 0 {
		fmt.Fprintf(b, "\nProbes still pending after %s: %d. A running writer waits for them.\n", result.ProbeTimeout, result.PendingProbes)
	}
	for i := range result.Decision.Guards {
		fmt.Fprintf(b, "\n%s\n", display.Sanitize(endpoints.DescribeGuard(&result.Decision.Guards[i])))
	}
	for _, warning := range result.Warnings {
		fmt.Fprintf(b, "\n%s: %s\n", warning.Reason, display.Sanitize(warning.Note))
	}
}

func printWrites(b *strings.Builder, verb string, all, current []*discoveryv1.EndpointSlice) {
	for _, slice := range all {
		var before *discoveryv1.EndpointSlice
		if i := slices.IndexFunc(current, func(c *discoveryv1.EndpointSlice) bool { return c.Name == slice.Name }); i >= 0 {
			before = current[i]
		}
		after := slice
		if verb == "delete" {
			after = nil
		}
		fmt.Fprintf(b, "%s EndpointSlice %s\n%s\n", verb, slice.Name, history.FormatChanges(history.CompareSlices(before, after, nil)))
	}
}

// printVerdicts prints a table of the endpoints with the rule that decided and its reason.
func printVerdicts(b *strings.Builder, all []verdict.Endpoint) {
	if len(all) == 0 {
		b.WriteString("no endpoint is listed or reported\n")
		return
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ADDRESS\tVERDICT\tDESIRED\tRULE\tREASON")
	for i := range all {
		e := &all[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", e.Address, e.Verdict, endpoints.ListedBackend(e), e.Rule, display.Sanitize(e.Reason))
	}
	table.Flush() //nolint:errcheck // writes to memory
}
