package overview

import (
	"fmt"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
)

// cloudSection shows the last listing, the request budget and the expiry of the token.
func (b *pageBuilder) cloudSection() statuspage.Section {
	return statuspage.Section{Title: "IONOS API", Table: &statuspage.Table{Columns: []string{"about", "state"}, Rows: [][]statuspage.Line{
		{{Text: "last listing"}, b.listingLine()}, {{Text: "request budget"}, b.budgetLine()}, {{Text: "token"}, b.tokenLine()},
	}}}
}

func (b *pageBuilder) listingLine() statuspage.Line {
	l := &b.Listing
	switch {
	case l.StartedAt.IsZero():
		return statuspage.Line{Severity: statuspage.Warning, Text: "none yet"}
	case l.Err != nil:
		return statuspage.Line{Severity: statuspage.Warning, Text: statuspage.SafeText(fmt.Sprintf("%s ago, failed: %v", statuspage.FormatAge(b.at, l.StartedAt), l.Err))}
	default:
		return statuspage.Line{Severity: statuspage.OK, Text: fmt.Sprintf("%s ago, %s in %s", statuspage.FormatAge(b.at, l.StartedAt),
			display.Count(l.Servers, "server", "servers"), l.Duration.Round(time.Millisecond))}
	}
}

func (b *pageBuilder) budgetLine() statuspage.Line {
	budget := b.Cloud.Budget()
	if budget.Wait > 0 {
		b.addProblemf(statuspage.Warning, "the IONOS API request budget is used up")
		return statuspage.Line{Severity: statuspage.Warning, Text: fmt.Sprintf(
			"used up: the next request waits %s. The limit is %d per minute (IONOS_REQUEST_BUDGET).", budget.Wait.Round(time.Second), budget.PerMinute)}
	}
	return statuspage.Line{Severity: statuspage.OK, Text: fmt.Sprintf("%s available now; the limit is %d per minute", display.Count(budget.Free, "request", "requests"), budget.PerMinute)}
}

func (b *pageBuilder) tokenLine() statuspage.Line {
	at, known, err := b.Cloud.TokenExpiry()
	left := at.Sub(b.at)
	switch {
	case err != nil:
		b.addProblemf(statuspage.Error, "the IONOS token cannot be read")
		return statuspage.Line{Severity: statuspage.Error, Text: statuspage.SafeText(err.Error())}
	case !known:
		return statuspage.Linef("no stated expiry")
	case left <= 0:
		b.addProblemf(statuspage.Error, "the IONOS token has expired")
		return statuspage.Line{Severity: statuspage.Error, Text: "expired on " + at.UTC().Format(time.DateTime) + " UTC; create a new token"}
	}
	line := statuspage.Line{Severity: statuspage.OK, Text: fmt.Sprintf("expires in %s, on %s", statuspage.FormatDuration(left), at.UTC().Format(time.DateOnly))}
	switch {
	case left <= ionos.ExpiryCritical:
		line.Severity = statuspage.Error
	case left <= ionos.ExpiryWarning:
		line.Severity = statuspage.Warning
	}
	if line.Severity != statuspage.OK {
		b.addProblemf(line.Severity, "the IONOS token expires in %s", statuspage.FormatDuration(left))
		line.Text += "; create a new token (IONOS_TOKEN_FILE is reloaded without a restart)"
	}
	return line
}
