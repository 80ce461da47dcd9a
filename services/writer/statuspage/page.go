package statuspage

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/prose"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// grade is how urgently something wants to be looked at; it is also its class in the style sheet.
type grade string

const (
	wrong grade = "wrong" // it is not as it should be, or nothing is ready
	look  grade = "look"  // somebody or something holds it back
	fine  grade = "fine"
)

var urgency = map[grade]int{wrong: 0, look: 1, fine: 2}

// page is what the templates are given.
type page struct {
	Style template.CSS
	Model *Model
	At    string

	Writer, Version, Holder, Asked string

	Wrong, Looks, Total int
	Held                string // changes that guards hold back; empty: none
	Sources             []source
	Rows                []row
	LeftOut             int // rows that there is no room for
	Folded              int // Services without details, for the same reason

	ranked []row
}

type source struct {
	Name, Trust  string
	Grade        grade
	Members      int
	Word, Counts string
	Reasons      []string
}

// row is a Service in a line.
type row struct {
	Name, State, Is string
	Grade           grade
	Counts          string

	view *endpoints.View
}

func newPage(m *Model) *page {
	p := &page{
		Style: template.CSS(style), //nolint:gosec // it is ours, and nobody else's text is in it
		Model: m, At: m.At.UTC().Format("2006-01-02 15:04:05 UTC"), Total: len(m.Services),
		Writer: text(m.Writer), Version: text(m.Version), Holder: text(m.Holder), Asked: text(m.Asked),
	}
	if m.Status.HeldBack > 0 {
		p.Held = count(m.Status.HeldBack, "change", "changes")
	}
	for i := range m.Services {
		r := newRow(&m.Services[i])
		switch r.Grade {
		case wrong:
			p.Wrong++
		case look:
			p.Looks++
		}
		p.ranked = append(p.ranked, r)
	}
	slices.SortStableFunc(p.ranked, func(a, b row) int { return cmp.Compare(urgency[a.Grade], urgency[b.Grade]) })
	p.Rows = p.ranked[:min(len(p.ranked), maxRows)]
	p.LeftOut = len(p.ranked) - len(p.Rows)
	for i := range m.Sources {
		p.Sources = append(p.Sources, m.source(&m.Sources[i]))
	}
	return p
}

func newRow(v *endpoints.View) row {
	r := row{
		Name: text(v.Namespace + "/" + v.Service), view: v,
		Counts: fmt.Sprintf("%d ready, %d draining, %d out", v.Ready, v.Draining, v.Out),
	}
	differ, held := 0, 0
	for i := range v.Addresses {
		if !v.Addresses[i].AsDecided() {
			differ++
		}
	}
	for _, g := range v.Guards {
		held += g.Held
	}
	switch v.State {
	case endpoints.Refused:
		r.State, r.Grade, r.Is = "refused", wrong, "refused: "+text(v.Reason)
		return r
	case endpoints.Paused:
		r.State, r.Grade, r.Is = "paused", look, "nothing is written"
		if differ > 0 {
			r.Is += fmt.Sprintf("; %s would change", count(differ, "address", "addresses"))
		}
		return r
	}
	r.State = "managed"
	switch {
	case v.Forbidden:
		r.Grade, r.Is = wrong, "nothing may be written, see its guards"
	case differ > 0:
		r.Grade, r.Is = wrong, count(differ, "address is", "addresses are")+" not written as decided"
	case v.OtherPorts:
		r.Grade, r.Is = wrong, "its slices list other ports than are decided"
	case v.Ready == 0:
		r.Grade, r.Is = wrong, "written as decided, and nothing is ready"
	case held > 0:
		r.Grade, r.Is = look, fmt.Sprintf("written as decided, %d held back", held)
	case len(v.Guards) > 0:
		r.Grade, r.Is = look, "written as decided, a guard acts"
	default:
		r.Grade, r.Is = fine, "right"
	}
	return r
}

func (m *Model) source(s *subscriber.Snapshot) source {
	worth := endpoints.Worth(s)
	one := source{
		Name: text(s.Source), Members: len(s.Members), Grade: fine, Trust: "believed",
		Word:   "never said that it sees its cluster",
		Counts: "no complete observation yet",
	}
	if !s.WordAt.IsZero() {
		one.Word = "said " + m.age(s.WordAt) + " ago that it sees its cluster"
	}
	if s.Observation > 0 {
		one.Counts = fmt.Sprintf("observation %d, heard of %s ago", s.Observation, m.age(s.ObservationReceivedAt))
	}
	if worth.Reason != "" {
		one.Grade, one.Trust = look, "in doubt"
		one.Reasons = append(one.Reasons, text(worth.Reason))
	}
	if !worth.Alive {
		one.Grade, one.Trust = wrong, "not heard"
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
		one.Grade, one.Trust = wrong, "not believed"
		one.Reasons = append(one.Reasons, fmt.Sprintf("its word changes nothing at present for %s here", count(silenced, "Service", "Services")))
	}
	return one
}

// service is a Service with all that is known of it.
type service struct {
	row

	Open               bool
	Message            string
	Ports              string
	Guards             []guard
	GuardsLeftOut      int
	Again              string // when it is decided again by itself
	Addresses          []address
	AddressesLeftOut   int
	OtherPorts, Paused bool
}

type guard struct{ Rule, Source, Held, Message string }

// address is the chain of one address, from the witnesses' words to the slices.
type address struct {
	Address, Node      string
	Is                 string
	Grade              grade
	Open               bool
	Decided, Listed    string
	Witnesses          []string
	Others             int // witnesses that there is no room for
	Probe              string
	Rule, Reason       string
	Guard              *guard
	Conclusion, Advice string
}

func (m *Model) service(r row, nth int) service {
	v := r.view
	s := service{
		row: r, Open: len(m.Services) == 1 || r.Grade == wrong && nth < maxOpen,
		Message: text(v.Message), OtherPorts: v.OtherPorts, Paused: v.State == endpoints.Paused,
	}
	var ports []string
	for _, p := range v.Ports {
		ports = append(ports, strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Number, p.Protocol)))
	}
	s.Ports = text(cmp.Or(strings.Join(ports, ", "), "none"))
	for i := range v.Guards[:min(len(v.Guards), maxGuards)] {
		s.Guards = append(s.Guards, newGuard(&v.Guards[i]))
	}
	s.GuardsLeftOut = len(v.Guards) - len(s.Guards)
	if !v.DecidesAt.IsZero() {
		s.Again = "at once"
		if in := v.DecidesAt.Sub(m.At); in > 0 {
			s.Again = "in " + rounded(in)
		}
	}
	entered := slices.Clone(v.Addresses)
	slices.SortStableFunc(entered, func(a, b endpoints.Entered) int { return cmp.Compare(urgency[gradeOf(v, &a)], urgency[gradeOf(v, &b)]) })
	for i := range entered[:min(len(entered), maxAddresses)] {
		a := m.address(v, &entered[i])
		a.Open = s.Open && a.Grade != fine && i < maxOpen
		s.Addresses = append(s.Addresses, a)
	}
	s.AddressesLeftOut = len(entered) - len(s.Addresses)
	return s
}

// gradeOf grades an address: a difference is wrong only where it should be written.
func gradeOf(v *endpoints.View, e *endpoints.Entered) grade {
	switch {
	case !e.AsDecided() && v.State == endpoints.Managed:
		return wrong
	case !e.AsDecided() || e.Listed == nil || !e.Listed.Conditions.Ready:
		return look
	default:
		return fine
	}
}

func (m *Model) address(v *endpoints.View, entered *endpoints.Entered) address {
	e := v.Explain(entered.Address)
	a := address{
		Address: e.Address.String(), Grade: gradeOf(v, entered),
		Decided: listed(entered.Decided), Listed: listed(entered.Listed),
		Rule: string(e.Judged.Rule), Reason: text(e.Judged.Reason),
		Conclusion: text(e.Conclusion), Advice: text(e.Advice),
	}
	if v.State == endpoints.Refused {
		a.Decided = "nothing"
	}
	a.Is = a.Listed
	if a.Grade == wrong {
		a.Is += ", to be " + a.Decided
	}
	slices.SortStableFunc(e.Witnesses, func(x, y endpoints.Witness) int { return b2i(x.Member == nil) - b2i(y.Member == nil) })
	for i := range e.Witnesses {
		w := &e.Witnesses[i]
		if w.Member != nil && a.Node == "" {
			a.Node = text(w.Member.Name)
		}
		if i < maxWitnesses {
			a.Witnesses = append(a.Witnesses, m.witness(w))
		} else {
			a.Others++
		}
	}
	a.Probe = m.probe(e.Probe)
	if e.Guard != nil {
		g := newGuard(e.Guard)
		a.Guard = &g
		if a.Advice == text(e.Guard.Message) {
			a.Advice = "" // it is on the page already
		}
	}
	return a
}

// witness is the first witness's word.
func (m *Model) witness(w *endpoints.Witness) string {
	said := "source " + w.Name + ": "
	switch {
	case !w.Heard:
		return text(said + "not heard since this writer started")
	case w.Member == nil:
		said += "does not list it"
	default:
		states := [...]string{verdict.Unknown: "in a state unknown to this version", verdict.Ready: "ready", verdict.Draining: "draining", verdict.NotReady: "not ready"}
		said += states[w.Member.State] + " for " + m.age(w.Member.Since) + ", as " + w.Member.Name
	}
	if !w.ObservedAt.IsZero() {
		said += fmt.Sprintf(" (observation %d, heard of %s ago)", w.Observation, m.age(w.ObservedAt))
	}
	if w.Reason != "" {
		said += "; " + w.Reason
	}
	return text(said)
}

// probe is the second witness's word.
func (m *Model) probe(p *verdict.Probe) string {
	if p == nil {
		return "none: it is not probed"
	}
	switch p.Health {
	case verdict.Passing:
		return "passing for " + m.age(p.Since)
	case verdict.Failing:
		said := "failing for " + m.age(p.Since)
		if p.Detail != "" {
			said += ": " + p.Detail
		}
		if !p.Passed.IsZero() { // what passes now has passed since the last decision, too
			said += "; last passed " + m.age(p.Passed) + " ago"
		}
		return text(said)
	default:
		return "not judged yet"
	}
}

func newGuard(g *verdict.Guard) guard {
	return guard{Rule: string(g.Rule), Source: text(g.Source), Held: count(g.Held, "address", "addresses"), Message: text(g.Message)}
}

func listed(b *endpoints.Backend) string {
	if b == nil {
		return "not listed"
	}
	return endpoints.InWords(b.Conditions)
}

// age is how long ago something was, in words; an age that nobody knows is said to be one.
func (m *Model) age(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return rounded(max(m.At.Sub(t), 0))
}

// rounded is a duration without what nobody reads: 850ms, 42s, 3m10s, 5h2m, 12d.
func rounded(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// text is a stranger's, without what steers, and no longer than there is room for.
func text(s string) string {
	s = prose.Sane(s)
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
