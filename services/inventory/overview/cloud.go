package overview

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/inventory/ionoshttp"
)

// cloudSection shows the last listing, the request budget and the expiry of the token.
func (b *pageBuilder) cloudSection() statuspage.Section {
	return statuspage.Section{
		Name:  "cloud",
		Title: "IONOS API",
		Table: &statuspage.Table{Columns: []string{"about", "state"}, Rows: [][]statuspage.Line{
			{{Text: "last listing"}, b.listingLine()}, {{Text: "request budget"}, b.budgetLine()}, {{Text: "token"}, b.tokenLine()},
		}},
	}
}

func (b *pageBuilder) listingLine() statuspage.Line {
	l := &b.Listing
	age := statuspage.FormatAge(b.at, l.StartedAt)
	switch {
	case l.StartedAt.IsZero():
		return statuspage.Warnf("none yet")
	case l.Err != nil:
		return statuspage.Warnf("%s ago, failed: %v", age, l.Err)
	default:
		return statuspage.OKf("%s ago, %s in %s", age, display.Count(l.Servers, "server", "servers"), l.Duration.Round(time.Millisecond))
	}
}

func (b *pageBuilder) budgetLine() statuspage.Line {
	budget := b.Cloud.Budget()
	if budget.Wait > 0 {
		b.addProblem(statuspage.Warnf("the IONOS API request budget is used up"))
		return statuspage.Warnf(
			"used up: the next request waits %s. The limit is %d per minute (IONOS_REQUEST_BUDGET).",
			budget.Wait.Round(time.Second),
			budget.PerMinute,
		)
	}
	return statuspage.OKf(
		"%s available now; the limit is %d per minute",
		display.Count(budget.Free, "request", "requests"),
		budget.PerMinute,
	)
}

func (b *pageBuilder) tokenLine() statuspage.Line {
	at, known, err := b.Cloud.TokenExpiry()
	left := at.Sub(b.at)
	switch {
	case err != nil:
		b.addProblem(statuspage.Errorf("the IONOS token cannot be read"))
		return statuspage.Errorf("%v", err)
	case !known:
		return statuspage.Linef("no stated expiry")
	case left <= 0:
		b.addProblem(statuspage.Errorf("the IONOS token has expired"))
		return statuspage.Errorf("expired on %s UTC; create a new token", at.UTC().Format(time.DateTime))
	}
	remaining := duration.HumanDuration(left)
	line := statuspage.OKf("expires in %s, on %s", remaining, at.UTC().Format(time.DateOnly))
	switch {
	case left <= ionoshttp.ExpiryCritical:
		line.Severity = statuspage.Error
	case left <= ionoshttp.ExpiryWarning:
		line.Severity = statuspage.Warning
	default:
		return line
	}
	b.addProblem(statuspage.Line{Severity: line.Severity, Text: "the IONOS token expires in " + remaining})
	line.Text += "; create a new token (IONOS_TOKEN_FILE is reloaded without a restart)"
	return line
}
