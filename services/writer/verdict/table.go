package verdict

// own finds the source whose word counts for each address. What is held belongs to the source
// whose label it bears, until that one, believed, leaves it out; everything else to the
// first by name that tells it, of those that are believed if there are any.
func (c *court) own() {
	words := c.past.words
	for i := range c.subjects {
		s := &c.subjects[i]
		for len(words) > 0 && words[0].address.Less(s.address) {
			words = words[1:]
		}
		if len(words) > 0 && words[0].address == s.address {
			s.past = &words[0]
			if s.held == nil && s.past.out {
				s.label = c.source(s.past.source)
			}
		}
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
	c.memory.words = make([]word, 0, len(c.subjects))
	settled := len(c.sources) > 0
	for i := range c.sources {
		settled = settled && c.sources[i].believed()
	}
	for i := range c.subjects {
		s := &c.subjects[i]
		var last State
		if s.past != nil && s.owner != nobody && s.past.source == c.sources[s.owner].Name {
			last = s.past.state
		}
		e, last := c.judge(i, last, settled)
		c.decision.Endpoints = append(c.decision.Endpoints, e)
		out := e.Verdict != Gone && !e.Listed && (s.held != nil || (s.past != nil && s.past.out))
		if last != Unknown || out {
			c.memory.words = append(c.memory.words, word{address: s.address, source: e.Source, state: last, out: out})
		}
	}
}

// judge returns the judgement of one subject, and the last word on it that was trusted.
func (c *court) judge(i int, last State, settled bool) (Endpoint, State) {
	s := &c.subjects[i]
	e := Endpoint{Address: s.address}
	if s.held != nil {
		e.Zone = s.held.Zone
	}
	health, detail := off, ""
	if c.in.Limits.Probing {
		probe := c.in.Probes[s.address]
		health, detail = probe.Health, probe.Detail
	}

	if s.owner == nobody || (s.owner == s.refused && c.claimed(i, s.owner) == nil) {
		return c.disowned(s, e, health, detail, settled), Unknown
	}
	w := &c.sources[s.owner]
	e.Source = w.Name
	member, state := c.claimed(i, s.owner), unlisted
	if member != nil {
		state = member.State
	}
	if !w.believed() {
		e.Rule = w.rule
		e.Verdict, e.Conditions = hold(s.held, health, last)
		e.Reason = c.reason(said{w.Name, w.why, health, detail})
		w.holds += c.kept(s, e, state, health, last)
		return c.listed(s, e, false, health), last
	}
	e.Rule = RuleTable
	e.Verdict, e.Conditions = rule(s.held, state, health, last)
	e.Reason = c.reason(said{w.Name, states[state], health, detail})
	if member != nil && (s.held == nil || e.Verdict != Hold) {
		e.Zone = member.Zone
	}
	if state != Unknown {
		last = state
	}
	return c.listed(s, e, true, health), last
}

// rule is the table of a source that is believed.
func rule(held *Held, state State, health Health, last State) (Verdict, Conditions) {
	switch {
	case state == unlisted:
		return Gone, Conditions{}
	case state == Unknown:
		return hold(held, health, last)
	case health == Failing:
		return Out, Conditions{}
	case state == Draining:
		return Drain, draining
	case health == Unjudged:
		return Hold, as(held)
	case state == Ready, health == Passing: // kubelets restart; the data plane answers
		return Serve, ready
	default:
		return Out, Conditions{}
	}
}

// hold leaves an endpoint as it was, but for what its probe says: one that fails is out, and
// one that was out and passes becomes what the last trusted word makes of it.
func hold(held *Held, health Health, last State) (Verdict, Conditions) {
	switch {
	case health == Failing:
		return Out, Conditions{}
	case held != nil && isOut(held.Conditions) && health == Passing:
		switch last {
		case Draining:
			return Hold, draining
		case unlisted: // it was to go, and that was not written yet
			return Gone, Conditions{}
		default:
			return Hold, ready
		}
	default:
		return Hold, as(held)
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
func (c *court) listed(s *subject, e Endpoint, believed bool, health Health) Endpoint {
	switch {
	case e.Verdict == Gone:
	case e.Verdict == Out:
		e.Listed = s.held != nil && c.in.Limits.ListOut
	case s.held != nil:
		e.Listed = true
	default: // nothing new on anything less than two witnesses
		e.Listed = believed && (e.Verdict == Serve || e.Verdict == Drain) && (health == Passing || health == off)
	}
	if !e.Listed {
		e.Conditions = Conditions{}
	}
	return e
}

// kept is 1 if an endpoint is held back by the guard of its source that is not believed.
func (c *court) kept(s *subject, e Endpoint, state State, health Health, last State) int {
	if s.held == nil || e.Verdict == Out {
		return 0
	}
	if e.Rule == RuleEmpty {
		if _, otherwise := rule(s.held, state, health, last); state != unlisted && otherwise == e.Conditions {
			return 0
		}
	}
	return 1
}

// disowned judges what no source may speak for: it is outside of its source's fence, or its
// source is none of this target's any more. The latter goes only when every source
// that could take it over is believed, and has not: a new name for a source, or a label
// that was lost, must not empty a Service.
func (c *court) disowned(s *subject, e Endpoint, health Health, detail string, settled bool) Endpoint {
	switch cause := never(s.address); {
	case s.refused != nobody && (s.held == nil || s.refused == s.label):
		e.Source, e.Rule, e.Verdict = c.sources[s.refused].Name, RuleFence, Gone
		e.Reason = "feed " + e.Source + ": refused, " + s.cause
	case cause != "":
		e.Source, e.Rule, e.Verdict = labelled(s.held), RuleFence, Gone
		e.Reason = "feed " + e.Source + ": refused, " + cause
	case settled:
		e.Source, e.Rule, e.Verdict = labelled(s.held), RuleTable, Gone
		e.Reason = c.reason(said{e.Source, "no source of this Service", health, detail})
	default:
		e.Source, e.Rule = labelled(s.held), RuleTrust
		e.Verdict, e.Conditions = hold(s.held, health, Unknown)
		e.Reason = c.reason(said{e.Source, "no source of this Service, and not every other is believed", health, detail})
	}
	return c.listed(s, e, false, health)
}

var states = [...]string{
	Unknown:  "a state that this version does not know",
	Ready:    "READY",
	Draining: "DRAINING",
	NotReady: "NOT_READY",
	unlisted: "no longer listed",
}

// said is what a reason is made of.
type said struct {
	source, feed string
	health       Health
	detail       string
}

// reason puts the two witnesses' words into one line, without numbers that change by
// themselves. Most endpoints of a Service have the same, so the last one is kept.
func (c *court) reason(s said) string {
	if c.saidText == "" || s != c.said {
		c.said, c.saidText = s, s.String()
	}
	return c.saidText
}

func (s said) String() string {
	probe := [...]string{Unjudged: "not judged yet", Passing: "passing", Failing: "failing", off: "off"}[s.health]
	if s.health == Failing && s.detail != "" {
		probe += " (" + s.detail + ")"
	}
	return "feed " + s.source + ": " + s.feed + ", probe: " + probe
}
