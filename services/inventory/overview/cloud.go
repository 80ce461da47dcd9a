package overview

import (
	"fmt"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
)

// When the end of a token is worth a word: as the log has it.
const (
	expiresSoon    = 28 * 24 * time.Hour
	expiryCritical = 3 * 24 * time.Hour
)

// cloudSection says what the cloud's API costs, and for how long it may be asked.
func (m *pageBuilder) cloudSection() statuspage.Section {
	return statuspage.Section{Title: "Cloud API", Table: &statuspage.Table{Columns: []string{"about", "state"}, Rows: [][]statuspage.Line{
		{{Text: "last listing"}, m.listingLine()}, {{Text: "request budget"}, m.budgetLine()}, {{Text: "token"}, m.tokenLine()},
	}}}
}

func (m *pageBuilder) listingLine() statuspage.Line {
	l := &m.Listing
	switch {
	case l.StartedAt.IsZero():
		return statuspage.Line{Severity: statuspage.Warning, Text: "there was none yet"}
	case l.Err != nil:
		return statuspage.Line{Severity: statuspage.Warning, Text: statuspage.SafeText(fmt.Sprintf("%s ago, and it failed: %v", statuspage.FormatAge(m.at, l.StartedAt), l.Err))}
	default:
		return statuspage.Line{Severity: statuspage.OK, Text: fmt.Sprintf("%s ago, %s in %s", statuspage.FormatAge(m.at, l.StartedAt),
			statuspage.FormatCount(l.Servers, "server", "servers"), l.Duration.Round(time.Millisecond))}
	}
}

func (m *pageBuilder) budgetLine() statuspage.Line {
	b := m.Cloud.Budget()
	if b.Wait > 0 {
		m.addProblemf(statuspage.Warning, "the request budget of the cloud API is used up")
		return statuspage.Line{Severity: statuspage.Warning, Text: fmt.Sprintf(
			"used up: the next request waits for %s. At most %d leave in any minute (IONOS_REQUEST_BUDGET).", b.Wait.Round(time.Second), b.PerMinute)}
	}
	return statuspage.Line{Severity: statuspage.OK, Text: fmt.Sprintf("%s could leave at once; at most %d do in any minute", statuspage.FormatCount(b.Free, "request", "requests"), b.PerMinute)}
}

func (m *pageBuilder) tokenLine() statuspage.Line {
	at, known, err := m.Cloud.TokenExpiry()
	left := at.Sub(m.at)
	switch {
	case err != nil:
		m.addProblemf(statuspage.Error, "the IONOS token cannot be read")
		return statuspage.Line{Severity: statuspage.Error, Text: statuspage.SafeText(err.Error())}
	case !known:
		return statuspage.Linef("it does not say when it expires")
	case left <= 0:
		m.addProblemf(statuspage.Error, "the IONOS token has expired")
		return statuspage.Line{Severity: statuspage.Error, Text: "it expired on " + at.UTC().Format(time.DateTime) + " UTC: make another"}
	}
	line := statuspage.Line{Severity: statuspage.OK, Text: fmt.Sprintf("it expires in %s, on %s", statuspage.FormatDuration(left), at.UTC().Format(time.DateOnly))}
	switch {
	case left <= expiryCritical:
		line.Severity = statuspage.Error
	case left <= expiresSoon:
		line.Severity = statuspage.Warning
	}
	if line.Severity != statuspage.OK {
		m.addProblemf(line.Severity, "the IONOS token expires in %s", statuspage.FormatDuration(left))
		line.Text += ": make another; in IONOS_TOKEN_FILE it is replaced without a restart"
	}
	return line
}
