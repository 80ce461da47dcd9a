package app

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

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
			desired = applier.InWords(e.Conditions)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", e.Address, e.Verdict, desired, e.Rule, display.Sanitize(e.Reason))
	}
	table.Flush() //nolint:errcheck // writes to memory
	return b.String()
}
