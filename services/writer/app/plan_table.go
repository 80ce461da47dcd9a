package app

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

var verdictNames = map[verdict.Verdict]string{
	verdict.Serve: "serve", verdict.Drain: "drain", verdict.Out: "out", verdict.Gone: "gone", verdict.Hold: "hold",
}

// formatVerdicts is a table of the endpoints, with the rule that spoke last and the reason.
func formatVerdicts(all []verdict.Endpoint) string {
	if len(all) == 0 {
		return "no endpoint is listed, and none is told\n"
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ADDRESS\tVERDICT\tLISTED AS\tRULE\tREASON")
	for _, e := range all {
		as := "not listed"
		if e.Listed {
			as = applier.InWords(e.Conditions)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", e.Address, verdictNames[e.Verdict], as, e.Rule, display.Sanitize(e.Reason))
	}
	table.Flush() //nolint:errcheck // into memory
	return b.String()
}
