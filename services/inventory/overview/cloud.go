package overview

import (
	"fmt"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
)

// When the end of a token is worth a word: as the log has it.
const (
	tokenSoon   = 28 * 24 * time.Hour
	tokenAtOnce = 3 * 24 * time.Hour
)

// cloud says what the cloud's API costs, and for how long it may be asked.
func (m *model) cloud() statuspage.Section {
	return statuspage.Section{Title: "Cloud API", Table: &statuspage.Table{Columns: []string{"about", "state"}, Rows: [][]statuspage.Line{
		{{Text: "last listing"}, m.listing()}, {{Text: "request budget"}, m.budget()}, {{Text: "token"}, m.token()},
	}}}
}

func (m *model) listing() statuspage.Line {
	l := &m.Listing
	switch {
	case l.At.IsZero():
		return statuspage.Line{Grade: statuspage.Look, Text: "there was none yet"}
	case l.Err != nil:
		return statuspage.Line{Grade: statuspage.Look, Text: statuspage.Text(fmt.Sprintf("%s ago, and it failed: %v", statuspage.Age(m.at, l.At), l.Err))}
	default:
		return statuspage.Line{Grade: statuspage.Fine, Text: fmt.Sprintf("%s ago, %s in %s", statuspage.Age(m.at, l.At),
			statuspage.Count(l.Servers, "server", "servers"), l.Took.Round(time.Millisecond))}
	}
}

func (m *model) budget() statuspage.Line {
	b := m.Cloud.Budget()
	if b.Wait > 0 {
		m.blamef(statuspage.Look, "the request budget of the cloud API is used up")
		return statuspage.Line{Grade: statuspage.Look, Text: fmt.Sprintf(
			"used up: the next request waits for %s. At most %d leave in any minute (IONOS_REQUEST_BUDGET).", b.Wait.Round(time.Second), b.PerMinute)}
	}
	return statuspage.Line{Grade: statuspage.Fine, Text: fmt.Sprintf("%s could leave at once; at most %d do in any minute", statuspage.Count(b.Free, "request", "requests"), b.PerMinute)}
}

func (m *model) token() statuspage.Line {
	at, known, err := m.Cloud.TokenExpiry()
	left := at.Sub(m.at)
	switch {
	case err != nil:
		m.blamef(statuspage.Wrong, "the IONOS token cannot be read")
		return statuspage.Line{Grade: statuspage.Wrong, Text: statuspage.Text(err.Error())}
	case !known:
		return statuspage.Say("it does not say when it expires")
	case left <= 0:
		m.blamef(statuspage.Wrong, "the IONOS token has expired")
		return statuspage.Line{Grade: statuspage.Wrong, Text: "it expired on " + at.UTC().Format(time.DateTime) + " UTC: make another"}
	}
	line := statuspage.Line{Grade: statuspage.Fine, Text: fmt.Sprintf("it expires in %s, on %s", statuspage.Rounded(left), at.UTC().Format(time.DateOnly))}
	switch {
	case left <= tokenAtOnce:
		line.Grade = statuspage.Wrong
	case left <= tokenSoon:
		line.Grade = statuspage.Look
	}
	if line.Grade != statuspage.Fine {
		m.blamef(line.Grade, "the IONOS token expires in %s", statuspage.Rounded(left))
		line.Text += ": make another; in IONOS_TOKEN_FILE it is replaced without a restart"
	}
	return line
}
