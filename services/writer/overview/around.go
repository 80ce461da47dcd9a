package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// sources says what the sources are worth, and names those that are not believed.
func (m *model) sources() (s statuspage.Section, unheard []string) {
	s = statuspage.Section{Title: "Sources"}
	t := &statuspage.Table{Columns: []string{"source", "trust", "nodes", "saw its cluster", "last observation", "why"}}
	for i := range m.Sources {
		row := m.source(&m.Sources[i])
		if row[1].Severity == statuspage.Error {
			unheard = append(unheard, row[0].Text)
		}
		t.Rows = append(t.Rows, row)
	}
	if !slices.ContainsFunc(t.Rows, func(r []statuspage.Line) bool { return r[5].Text != "" }) {
		t.Columns = t.Columns[:5]
		for i := range t.Rows {
			t.Rows[i] = t.Rows[i][:5]
		}
	}
	if len(t.Rows) > 0 {
		s.Table = t
	}
	return s, unheard
}

func (m *model) source(s *subscriber.Snapshot) []statuspage.Line {
	worth := endpoints.Worth(s)
	trust := statuspage.Line{Severity: statuspage.OK, Text: "believed"}
	word, observed := "never", "none yet"
	if !s.MembershipSyncedAt.IsZero() {
		word = statuspage.FormatAge(m.At, s.MembershipSyncedAt) + " ago"
	}
	if s.Observation > 0 {
		observed = fmt.Sprintf("#%d, %s ago", s.Observation, statuspage.FormatAge(m.At, s.ObservationReceivedAt))
	}
	var reasons []string
	if worth.Reason != "" {
		trust = statuspage.Line{Severity: statuspage.Warning, Text: "in doubt"}
		reasons = append(reasons, worth.Reason)
	}
	if !worth.Alive {
		trust = statuspage.Line{Severity: statuspage.Error, Text: "not heard"}
	}
	silenced := 0
	for i := range m.Services {
		if slices.ContainsFunc(m.Services[i].Guards, func(g verdict.Guard) bool {
			return g.Source == s.Source && (g.Rule == verdict.RuleTrust || g.Rule == verdict.RuleGate)
		}) {
			silenced++
		}
	}
	if silenced > 0 {
		trust = statuspage.Line{Severity: statuspage.Error, Text: "not believed"}
		reasons = append(reasons, fmt.Sprintf("its word changes nothing at present for %s here", statuspage.FormatCount(silenced, "Service", "Services")))
	}
	return []statuspage.Line{
		{Text: statuspage.SafeText(s.Source)},
		trust,
		{Text: strconv.Itoa(len(s.Members))},
		{Text: word},
		{Text: observed},
		{Text: statuspage.SafeText(strings.Join(reasons, "; "))},
	}
}

// writes are the last ones, with what they changed and why.
func (m *model) writes() statuspage.Section {
	s := statuspage.Section{Title: "Last writes"}
	if m.Dry {
		s.Title = "Last writes, rehearsed and not sent"
	}
	switch {
	case len(m.Writes) > 0:
	case m.Dry:
		s.Lines = []statuspage.Line{statuspage.Linef("This writer would have written nothing%s since it started.", m.about())}
	case m.Asked != "": // it remembers the last writes only, and may have made others
		s.Lines = []statuspage.Line{statuspage.Linef("This writer remembers no write%s.", m.about())}
	case m.Leading:
		s.Lines = []statuspage.Line{statuspage.Linef("This writer has written nothing since it started.")}
	default:
		s.Lines = []statuspage.Line{statuspage.Linef("This writer has written nothing since it started: the page of the one that leads has the last writes.")}
	}
	for i := range m.Writes[:min(len(m.Writes), maxHistory)] {
		s.Items = append(s.Items, m.write(&m.Writes[i]))
		s.Items[i].Expanded = m.Asked != "" || i == 0 && m.At.Sub(m.Writes[i].At) < fresh
	}
	s.Omitted = earlier(len(m.Writes) - len(s.Items))
	return s
}

// about names the Service that was asked for, if one was.
func (m *model) about() string {
	if m.Asked == "" {
		return ""
	}
	return " for " + statuspage.SafeText(m.Asked)
}

// fresh is how old the last write may be to be shown unfolded: it may be what somebody came for.
const fresh = 15 * time.Minute

func earlier(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%d earlier ones are left out.", n)
}

var past = map[string]string{"create": "created", "update": "updated", "delete": "deleted"}

func (m *model) write(w *history.Write) statuspage.Item {
	i := statuspage.Item{
		Name: statuspage.SafeText(w.Namespace + "/" + w.Slice), Detail: statuspage.FormatTime(m.At, w.At),
		Summary: statuspage.Line{Text: cmp.Or(past[w.Verb], statuspage.SafeText(w.Verb))},
	}
	if w.Result != "ok" {
		i.Summary = statuspage.Line{Severity: statuspage.Error, Text: statuspage.SafeText(w.Verb + " " + w.Result)}
		if w.Result == "conflict" || w.Result == "throttled" {
			i.Summary.Severity = statuspage.Warning // it is tried again at once, or when the API server wants it
		}
		if w.Attempts > 1 {
			i.Summary.Text += fmt.Sprintf(", %d times", w.Attempts)
		}
		i.Lines = append(i.Lines, statuspage.Line{Severity: i.Summary.Severity, Text: "The API server says: " + statuspage.SafeText(w.Message)})
	}
	counts := map[string]int{}
	for n := range w.Changes {
		c := &w.Changes[n]
		if strings.HasPrefix(c.Field, "endpoint ") {
			counts[c.Mark()]++
		}
		i.Diff = append(i.Diff, statuspage.SafeText(c.String()))
		if c.Reason != "" {
			i.Diff = append(i.Diff, "  "+statuspage.SafeText(c.Reason))
		}
	}
	for _, mark := range []string{"+", "-", "~"} {
		if n := counts[mark]; n > 0 {
			i.Summary.Text += fmt.Sprintf(" %s%d", mark, n)
		}
	}
	if len(counts) == 0 && w.Result == "ok" {
		i.Summary.Text += ", no endpoint changed"
	}
	if w.OmittedChanges > 0 {
		i.Omitted = fmt.Sprintf("%d more changes are left out.", w.OmittedChanges)
	}
	return i
}

// events are the last Events.
func (m *model) events() statuspage.Section {
	s := statuspage.Section{Title: "Recent events"}
	if len(m.Events) == 0 {
		s.Lines = []statuspage.Line{statuspage.Linef("This writer has told no Event since it started.")}
		if m.Asked != "" {
			s.Lines = []statuspage.Line{statuspage.Linef("This writer remembers no Event%s.", m.about())}
		}
	}
	for i := range m.Events[:min(len(m.Events), maxHistory)] {
		e := &m.Events[i]
		s.Items = append(s.Items, statuspage.Item{
			Name: statuspage.SafeText(e.Namespace + "/" + e.Service), Summary: statuspage.Line{Text: statuspage.SafeText(e.Reason)},
			Detail: statuspage.FormatTime(m.At, e.At), Expanded: m.Asked != "", Lines: []statuspage.Line{{Text: statuspage.SafeText(e.Note)}},
		})
	}
	s.Omitted = earlier(len(m.Events) - len(s.Items))
	return s
}
