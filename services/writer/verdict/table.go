package verdict

import (
	"net/netip"
	"slices"
)

// own finds the source whose word counts for each address. What is held belongs to the source
// whose label it bears, until that one, believed, leaves it out; everything else to the
// first by name that tells it, of those that are believed if there are any.
func (c *court) own() {
	for i := range c.subjects {
		s := &c.subjects[i]
		if s.label != nobody && s.refused != s.label &&
			(c.claimed(i, s.label) != nil || !c.sources[s.label].believed()) {
			s.owner = s.label
			continue
		}
		for j := range c.sources {
			if c.claimed(i, j) == nil {
				continue
			}
			if s.owner == nobody {
				s.owner = j
			}
			if c.sources[j].believed() {
				s.owner = j
				break
			}
		}
		if s.owner == nobody {
			s.owner = s.label
		}
	}
}

// witnesses' words, as columns and rows of the table.
const (
	unlisted = NotReady + 1 // the source is believed and does not list it
	off      = Failing + 1  // nobody probes
)

// table judges each address by what its source and its probe say.
func (c *court) table() {
	c.decision.Endpoints = make([]Endpoint, 0, len(c.subjects))
	settled := len(c.sources) > 0
	for i := range c.sources {
		settled = settled && c.sources[i].believed()
	}
	for i := range c.subjects {
		c.decision.Endpoints = append(c.decision.Endpoints, c.judge(i, settled))
	}
	c.steady()
}

// heard notes what a trusted source said last of a subject, since when, and whether it is our
// own doing that it says so. State is Unknown when nothing new is said.
func (c *court) heard(s *subject, state State) {
	w := &c.sources[s.owner]
	known := s.past != nil && s.past.source == w.Name && s.past.state != Unknown
	if known {
		s.state, s.since = s.past.state, s.past.since
		// Another selection is another reason, unless it leaves it out as well: when it is undone
		// while the source is not believed, who knows why the address is gone when that is over?
		s.ours = s.past.ours && (!w.reselected || state == unlisted)
	}
	if state == Unknown || known && state == s.state {
		return
	}
	s.state, s.since = state, c.now
	s.ours = state == unlisted && w.reselected
}

// lastReport is what the source of a subject last reported of it while it could be trusted; Unknown: nothing that counts.
// A report that is empty for this target counts only once it is confirmed, and then it is in memory already.
func (c *court) lastReport(s *subject) State {
	w := &c.sources[s.owner]
	if w.rule != RuleTrust {
		return Unknown
	}
	if w.report == nil {
		w.report = c.lastTrusted(w)
	}
	at, listed := slices.BinarySearchFunc(w.report.members, s.address, func(m Member, a netip.Addr) int { return m.Address.Compare(a) })
	switch {
	case listed:
		return w.report.members[at].State
	case w.report.serves:
		return unlisted
	}
	return Unknown
}

func (c *court) lastTrusted(w *witness) *report {
	r := &report{members: sorted(w.Trusted, func(a, b Member) int { return a.Address.Compare(b.Address) })}
	r.serves = slices.ContainsFunc(r.members, func(m Member) bool {
		serves := m.State != NotReady || c.in.Limits.Probing && c.in.Probes[m.Address].Health == Passing
		return serves && w.Fence.against(m.Address) == ""
	})
	return r
}

// judge returns the judgement of one subject. Settled is whether every source is believed.
func (c *court) judge(i int, settled bool) Endpoint {
	s := &c.subjects[i]
	e := Endpoint{Address: s.address}
	if s.held != nil {
		e.Zone = s.held.Zone
	}
	if s.owner == nobody || (s.owner == s.refused && c.claimed(i, s.owner) == nil) {
		return c.disowned(s, e, settled)
	}
	w := &c.sources[s.owner]
	e.Source = w.Name
	member, state := c.claimed(i, s.owner), unlisted
	if member != nil {
		state = member.State
	}
	if s.freed && member == nil && w.rule == RuleEmpty {
		c.heard(s, unlisted)
		e.Verdict, e.Rule, e.Reason = Gone, RuleTable, c.reason(s, w.Name, states[unlisted])
		return c.listed(s, e, true)
	}
	if !w.believed() {
		c.heard(s, c.lastReport(s))
		e.Rule = w.rule
		e.Verdict, e.Conditions = c.keep(s)
		e.Reason = c.reason(s, w.Name, w.why)
		w.holds += c.holds(s, e, state)
		return c.listed(s, e, false)
	}
	c.heard(s, state)
	e.Rule = RuleTable
	e.Verdict, e.Conditions = c.rule(s, state)
	e.Reason = c.reason(s, w.Name, states[state])
	if member != nil && (s.held == nil || e.Verdict != Hold) {
		e.Zone = member.Zone
	}
	return c.listed(s, e, true)
}

// rule is the table of a source that is believed.
func (c *court) rule(s *subject, state State) (Verdict, Conditions) {
	switch {
	case state == unlisted:
		return Gone, Conditions{}
	case s.health == Failing && c.void && state == NotReady:
		return Out, Conditions{}
	case s.health == Failing && c.void, state == Unknown:
		return c.keep(s)
	case s.health == Failing:
		return Out, Conditions{}
	case state == Draining:
		return Drain, draining
	case s.health == Unjudged:
		return Hold, as(s.held)
	case state == Ready, s.health == Passing: // kubelets restart; the data plane answers
		return Serve, ready
	default:
		return Out, Conditions{}
	}
}

// keep leaves an endpoint as it was, but for what its probe says: one that fails is out, and
// one that was out and passes becomes what the last trusted word makes of it. When failures are
// void, one that they have put out gets back what it had.
func (c *court) keep(s *subject) (Verdict, Conditions) {
	s.keeps = true
	switch {
	case s.spared:
		return Hold, s.past.had
	case s.health == Failing && (!c.void || isOut(as(s.held))):
		return Out, Conditions{}
	case s.held != nil && isOut(s.held.Conditions) && s.health == Passing:
		switch s.state {
		case Draining:
			return Hold, draining
		case unlisted: // it was to go, and that was not written yet
			return Gone, Conditions{}
		default:
			return Hold, ready
		}
	default:
		return Hold, as(s.held)
	}
}

var (
	ready    = Conditions{Ready: true, Serving: true}
	draining = Conditions{Serving: true, Terminating: true}
)

func isOut(c Conditions) bool { return !c.Ready && !c.Serving }

func as(held *Held) Conditions {
	if held == nil {
		return Conditions{}
	}
	return held.Conditions
}

// listed decides whether an endpoint belongs into the slices.
func (c *court) listed(s *subject, e Endpoint, believed bool) Endpoint {
	if c.void && s.health == Failing && e.Verdict == Hold && !isOut(e.Conditions) {
		e.Rule = RulePanic
		c.spares++
	}
	switch {
	case e.Verdict == Gone:
	case e.Verdict == Out:
		e.Listed = s.held != nil && c.in.Limits.ListOut
	case s.held != nil, s.spared:
		e.Listed = true
	default: // nothing new on anything less than two witnesses
		e.Listed = believed && (e.Verdict == Serve || e.Verdict == Drain) && (s.health == Passing || s.health == off)
	}
	if !e.Listed {
		e.Conditions = Conditions{}
	}
	return e
}

// holds is 1 if an endpoint is held back by the guard of its source that is not believed.
func (c *court) holds(s *subject, e Endpoint, state State) int {
	if s.held == nil || e.Verdict == Out {
		return 0
	}
	if e.Rule == RuleEmpty {
		if _, otherwise := c.rule(s, state); state != unlisted && otherwise == e.Conditions {
			return 0
		}
	}
	return 1
}

// disowned judges what no source may speak for: it is outside of its source's fence, or its
// source is none of this target's any more. The latter goes only when every source
// that could take it over is believed, and has not: a new name for a source, or a label
// that was lost, must not empty a Service.
func (c *court) disowned(s *subject, e Endpoint, settled bool) Endpoint {
	switch cause := never(s.address); {
	case s.refused != nobody && (s.held == nil || s.refused == s.label):
		e.Source, e.Rule, e.Verdict = c.sources[s.refused].Name, RuleFence, Gone
		e.Reason = "source " + e.Source + ": not allowed, " + s.cause
	case cause != "":
		e.Source, e.Rule, e.Verdict = labelled(s.held), RuleFence, Gone
		e.Reason = "source " + e.Source + ": not allowed, " + cause
	case settled:
		e.Source, e.Rule, e.Verdict = labelled(s.held), RuleTable, Gone
		e.Reason = c.reason(s, e.Source, "not a source of this Service")
	default:
		e.Source, e.Rule = labelled(s.held), RuleTrust
		e.Verdict, e.Conditions = c.keep(s)
		e.Reason = c.reason(s, e.Source, "not a source of this Service; other sources are not all trusted")
	}
	return c.listed(s, e, false)
}

var states = [...]string{
	Unknown:  "a state unknown to this version",
	Ready:    "READY",
	Draining: "DRAINING",
	NotReady: "NOT_READY",
	unlisted: "not listed",
}

// said is what a reason is made of.
type said struct {
	source, feed string
	health       Health
	detail       string
}

// reason puts the two witnesses' words into one line, without numbers that change by
// themselves. Most endpoints of a Service have the same, so the last one is kept.
func (c *court) reason(of *subject, source, feed string) string {
	s := said{source, feed, of.health, of.probe.Detail}
	if c.saidText == "" || s != c.said {
		c.said, c.saidText = s, s.String()
	}
	return c.saidText
}

func (s said) String() string {
	probe := [...]string{Unjudged: "pending", Passing: "passing", Failing: "failing", off: "off"}[s.health]
	if (s.health == Failing || s.health == Unjudged) && s.detail != "" {
		probe += " (" + s.detail + ")"
	}
	return "source " + s.source + ": " + s.feed + ", probe: " + probe
}
