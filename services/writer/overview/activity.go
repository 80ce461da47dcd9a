package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/statuspage"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// sourceSection shows the status of the sources, and returns the names of those that are not trusted.
func (m *pageModel) sourceSection() (s statuspage.Section, untrusted []string) {
	s = statuspage.Section{Title: "Sources"}
	t := &statuspage.Table{Columns: []string{"source", "trust", "nodes", "membership synced", "last observation", "reason"}}
	for i := range m.Sources {
		row := m.sourceRow(&m.Sources[i])
		if row[1].Severity == statuspage.Error {
			untrusted = append(untrusted, row[0].Text)
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
	return s, untrusted
}

func (m *pageModel) sourceRow(s *subscriber.Snapshot) []statuspage.Line {
	status := endpoints.NewSourceStatus(s)
	trust := statuspage.Line{Severity: statuspage.OK, Text: "trusted"}
	membership, observed := "never", "none yet"
	if !s.MembershipSyncedAt.IsZero() {
		membership = statuspage.FormatAge(m.At, s.MembershipSyncedAt) + " ago"
	}
	if s.Observation > 0 {
		observed = fmt.Sprintf("#%d, %s ago", s.Observation, statuspage.FormatAge(m.At, s.ObservationReceivedAt))
	}
	var reasons []string
	if status.Reason != "" {
		trust = statuspage.Line{Severity: statuspage.Warning, Text: "warning"}
		reasons = append(reasons, status.Reason)
	}
	if !status.Connected {
		trust = statuspage.Line{Severity: statuspage.Error, Text: "disconnected"}
	}
	ignoring := 0
	for i := range m.Services {
		if slices.ContainsFunc(m.Services[i].Guards, func(g verdict.Guard) bool {
			return g.Source == s.Source && (g.Rule == verdict.RuleTrust || g.Rule == verdict.RuleInitialSync)
		}) {
			ignoring++
		}
	}
	if ignoring > 0 {
		trust = statuspage.Line{Severity: statuspage.Error, Text: "not trusted"}
		reasons = append(reasons, "ignored by "+display.Count(ignoring, "Service", "Services"))
	}
	return []statuspage.Line{
		{Text: statuspage.SafeText(s.Source)},
		trust,
		{Text: strconv.Itoa(len(s.Members))},
		{Text: membership},
		{Text: observed},
		{Text: statuspage.SafeText(strings.Join(reasons, "; "))},
	}
}

// writeSection shows the last writes, with their changes and reasons.
func (m *pageModel) writeSection() statuspage.Section {
	s := statuspage.Section{Title: "Last writes"}
	if m.DryRun {
		s.Title = "Last writes (dry run, not sent)"
	}
	switch {
	case len(m.Writes) > 0:
	case m.DryRun:
		s.Lines = []statuspage.Line{statuspage.Linef("No writes%s since start.", m.filterSuffix())}
	case m.Filter != "": // only the last writes are recorded: there may have been others
		s.Lines = []statuspage.Line{statuspage.Linef("No recorded writes%s.", m.filterSuffix())}
	case m.Leading:
		s.Lines = []statuspage.Line{statuspage.Linef("No writes since start.")}
	default:
		s.Lines = []statuspage.Line{statuspage.Linef("No writes since start; the leader's page has the last writes.")}
	}
	for i := range m.Writes[:min(len(m.Writes), maxHistory)] {
		s.Items = append(s.Items, m.writeItem(&m.Writes[i]))
		s.Items[i].Expanded = m.Filter != "" || i == 0 && m.At.Sub(m.Writes[i].At) < maxExpandedAge
	}
	s.Omitted = describeEarlier(len(m.Writes) - len(s.Items))
	return s
}

// filterSuffix names the filter, if there is one.
func (m *pageModel) filterSuffix() string {
	if m.Filter == "" {
		return ""
	}
	return " for " + statuspage.SafeText(m.Filter)
}

// maxExpandedAge is the age up to which the last write is shown expanded.
const maxExpandedAge = 15 * time.Minute

func describeEarlier(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%d earlier ones omitted.", n)
}

var pastTense = map[string]string{"create": "created", "update": "updated", "delete": "deleted"}

func (m *pageModel) writeItem(w *history.Write) statuspage.Item {
	i := statuspage.Item{
		Name: statuspage.SafeText(w.Namespace + "/" + w.Slice), Detail: statuspage.FormatTime(m.At, w.At),
		Summary: statuspage.Line{Text: cmp.Or(pastTense[w.Verb], statuspage.SafeText(w.Verb))},
	}
	if w.Result != "ok" {
		i.Summary = statuspage.Line{Severity: statuspage.Error, Text: statuspage.SafeText(w.Verb + " " + w.Result)}
		if w.Result == "conflict" || w.Result == "throttled" {
			i.Summary.Severity = statuspage.Warning // retried immediately, or when the API server allows
		}
		if w.Attempts > 1 {
			i.Summary.Text += fmt.Sprintf(", %d times", w.Attempts)
		}
		i.Lines = append(i.Lines, statuspage.Line{Severity: i.Summary.Severity, Text: "API server: " + statuspage.SafeText(w.Message)})
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
		i.Omitted = fmt.Sprintf("%d more changes omitted.", w.OmittedChanges)
	}
	return i
}

// eventSection shows the last Events.
func (m *pageModel) eventSection() statuspage.Section {
	s := statuspage.Section{Title: "Recent events"}
	if len(m.Events) == 0 {
		s.Lines = []statuspage.Line{statuspage.Linef("No Events since start.")}
		if m.Filter != "" {
			s.Lines = []statuspage.Line{statuspage.Linef("No recorded Events%s.", m.filterSuffix())}
		}
	}
	for i := range m.Events[:min(len(m.Events), maxHistory)] {
		e := &m.Events[i]
		s.Items = append(s.Items, statuspage.Item{
			Name: statuspage.SafeText(e.Namespace + "/" + e.Service), Summary: statuspage.Line{Text: statuspage.SafeText(e.Reason)},
			Detail: statuspage.FormatTime(m.At, e.At), Expanded: m.Filter != "", Lines: []statuspage.Line{{Text: statuspage.SafeText(e.Note)}},
		})
	}
	s.Omitted = describeEarlier(len(m.Events) - len(s.Items))
	return s
}
