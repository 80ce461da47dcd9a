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
	s = statuspage.Section{Name: "sources", Title: "Sources"}
	if len(m.Sources) == 0 {
		return s, nil
	}
	s.Table = &statuspage.Table{Columns: []string{"source", "trust", "nodes", "membership synced", "last observation", "reason"}}
	for i := range m.Sources {
		row, values := m.sourceRow(&m.Sources[i])
		if row[1].Severity == statuspage.Error {
			untrusted = append(untrusted, row[0].Text)
		}
		s.Table.Rows, s.Table.Values = append(s.Table.Rows, row), append(s.Table.Values, values)
	}
	s.Table.DropEmptyColumn()
	return s, untrusted
}

func (m *pageModel) sourceRow(s *subscriber.Snapshot) (row []statuspage.Line, values statuspage.Values) {
	membership, observed := "never", "none yet"
	if !s.MembershipSyncedAt.IsZero() {
		membership = statuspage.FormatAge(m.At, s.MembershipSyncedAt) + " ago"
	}
	if s.Observation > 0 {
		observed = fmt.Sprintf("#%d, %s ago", s.Observation, statuspage.FormatAge(m.At, s.ObservationReceivedAt))
	}
	ignoring := 0
	for i := range m.Services {
		if slices.Contains(m.Services[i].Sources, s.FeedName()) && slices.ContainsFunc(m.Services[i].Guards, func(g verdict.Guard) bool {
			return g.Source == s.Source && (g.Rule == verdict.RuleTrust || g.Rule == verdict.RuleInitialSync)
		}) {
			ignoring++
		}
	}
	status, trust := endpoints.NewSourceStatus(s), statuspage.OKf("trusted")
	var reasons []string
	if status.Reason != "" {
		trust, reasons = statuspage.Warnf("warning"), append(reasons, status.Reason)
	}
	switch {
	case ignoring > 0:
		trust, reasons = statuspage.Errorf("not trusted"), append(reasons, "ignored by "+display.Count(ignoring, "Service", "Services"))
	case !status.Connected:
		trust = statuspage.Errorf("disconnected")
	}
	values = statuspage.Values{
		"source":            s.FeedName(),
		"connected":         status.Connected,
		"trusted":           ignoring == 0,
		"ignoredByServices": ignoring,
		"nodes":             len(s.Members),
		"observation":       int(s.Observation),
		"reason":            status.Reason,
	}
	values.SetTime("membershipSyncedAt", s.MembershipSyncedAt)
	values.SetTime("observedAt", s.ObservationReceivedAt)
	row = []statuspage.Line{
		{Text: s.FeedName()},
		trust,
		{Text: strconv.Itoa(len(s.Members))},
		{Text: membership},
		{Text: observed},
		{Text: strings.Join(reasons, "; ")},
	}
	return row, values
}

// maxExpandedAge is the age up to which the last write is shown expanded.
const maxExpandedAge = 15 * time.Minute

// writeSection shows the last writes, with their changes and reasons.
func (m *pageModel) writeSection() statuspage.Section {
	s := statuspage.Section{Name: "writes", Title: "Last writes"}
	none := "No writes since start."
	switch {
	case m.DryRun:
		s.Title = "Last writes (dry run, not sent)"
	case m.Filter != "": // only the last writes are recorded: there may have been others
		none = "No recorded writes for " + m.Filter + "."
	case !m.Leading:
		none = "No writes since start; the leader's page has the last writes."
	}
	for i := range m.Writes[:min(len(m.Writes), maxHistory)] {
		item := m.writeItem(&m.Writes[i])
		item.Expanded = m.Filter != "" || i == 0 && m.At.Sub(m.Writes[i].At) < maxExpandedAge
		s.Items = append(s.Items, item)
	}
	return finishHistory(s, len(m.Writes), none)
}

// finishHistory states what a section omits, or that there is nothing to show.
func finishHistory(s statuspage.Section, total int, none string) statuspage.Section {
	if n := total - len(s.Items); n > 0 {
		s.Omitted = fmt.Sprintf("%d earlier ones omitted.", n)
	}
	if total == 0 {
		s.Lines = []statuspage.Line{{Text: none}}
	}
	return s
}

func (m *pageModel) writeItem(w *history.Write) statuspage.Item {
	past := map[string]string{"create": "created", "update": "updated", "delete": "deleted"}
	i := statuspage.Item{
		Name:    w.Namespace + "/" + w.Slice,
		Detail:  statuspage.FormatTime(m.At, w.At),
		Summary: statuspage.Linef("%s", cmp.Or(past[w.Verb], w.Verb)),
		Values: statuspage.Values{
			"namespace": w.Namespace,
			"service":   w.Service,
			"slice":     w.Slice,
			"verb":      w.Verb,
			"result":    w.Result,
			"attempts":  w.Attempts,
		},
	}
	i.Values.SetTime("at", w.At)
	if w.Result != "ok" {
		i.Summary = statuspage.Errorf("%s %s", w.Verb, w.Result)
		if w.Result == "conflict" || w.Result == "throttled" {
			i.Summary.Severity = statuspage.Warning // retried immediately, or when the API server allows
		}
		if w.Attempts > 1 {
			i.Summary.Text += fmt.Sprintf(", %d times", w.Attempts)
		}
		i.Lines = []statuspage.Line{{Severity: i.Summary.Severity, Text: "API server: " + w.Message}}
	}
	counts := map[string]int{}
	for n := range w.Changes {
		c := &w.Changes[n]
		if strings.HasPrefix(c.Field, "endpoint ") {
			counts[c.Mark()]++
		}
		i.Diff = append(i.Diff, c.String())
		if c.Reason != "" {
			i.Diff = append(i.Diff, "  "+c.Reason)
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
	s := statuspage.Section{Name: "events", Title: "Recent events"}
	none := "No Events since start."
	if m.Filter != "" {
		none = "No recorded Events for " + m.Filter + "."
	}
	for i := range m.Events[:min(len(m.Events), maxHistory)] {
		e := &m.Events[i]
		item := statuspage.Item{
			Name: e.Namespace + "/" + e.Service, Summary: statuspage.Line{Text: e.Reason}, Detail: statuspage.FormatTime(m.At, e.At),
			Expanded: m.Filter != "", Lines: []statuspage.Line{{Text: e.Note}},
			Values: statuspage.Values{"namespace": e.Namespace, "service": e.Service, "reason": e.Reason, "note": e.Note},
		}
		item.Values.SetTime("at", e.At)
		s.Items = append(s.Items, item)
	}
	return finishHistory(s, len(m.Events), none)
}
