package verdict

import "fmt"

// panic finds out whether the probes can be believed. When everything fails at once, the
// prober's own network is the likelier fault: its failures are void then, so that the last
// endpoint never goes on its word alone. It needs no memory for that, and promises to hold
// for a prober that never worked, for a single endpoint, and in the gate. What it
// remembers is what the failures of the last moments took, before the last one was noticed.
func (c *court) panic() {
	c.memory.passed = c.past.passed
	if !c.in.Limits.Probing {
		return
	}
	failing, left, held := false, false, false
	for i := range c.subjects {
		s := &c.subjects[i]
		if last := s.lastPassed(); last.After(c.memory.passed) {
			c.memory.passed = last
		}
		c.decision.Sees = c.decision.Sees || s.health == Passing
		if s.held == nil {
			c.works = c.works || s.health == Passing && c.listable(i)
			continue
		}
		held = true
		if c.struck(i) {
			continue
		}
		failing = failing || s.health == Failing
		c.decision.CannotProbe = c.decision.CannotProbe || s.health == Unjudged && s.probe.Expired && !isOut(s.held.Conditions)
		left = left || !isOut(s.held.Conditions)
		c.works = c.works || s.health == Passing
	}
	c.void = failing && left && !c.works
	c.decision.Panic = c.void
	for i := range c.subjects {
		s := &c.subjects[i]
		s.spared = c.void && s.past != nil && !isOut(s.past.had) && (s.held == nil || isOut(s.held.Conditions)) &&
			s.health == Failing && s.firstFailed().After(c.memory.passed)
	}
	if held && !c.decision.Sees {
		c.memory.blind = c.past.blind
		if c.memory.blind.IsZero() {
			c.memory.blind = c.now
		}
		c.decision.BlindSince = c.memory.blind
	}
}

// struck says whether something that is held goes because of the fence.
func (c *court) struck(subject int) bool {
	s := &c.subjects[subject]
	for j := range c.sources {
		if c.claimed(subject, j) != nil {
			return false
		}
	}
	return never(s.address) != "" || s.refused != nobody && s.refused == s.label
}

// listable says whether a subject that is not held would be listed if its probe passes.
func (c *court) listable(subject int) bool {
	s := &c.subjects[subject]
	if s.label != nobody && s.refused != s.label && !c.sources[s.label].trusted {
		return false // nobody else may speak for it
	}
	for j := range c.sources {
		if m := c.claimed(subject, j); m != nil && m.State != Unknown && c.sources[j].trusted {
			return true
		}
	}
	return false
}

// steady keeps ready, in a panic, what drains and is not judged yet: others that fail stay, and
// with them alone ready all would be sent to those that we know least good of. It does so as
// long as one that fails is still listed; with the last one the panic ends, too.
func (c *court) steady() {
	lasts := false
	for i := range c.subjects {
		lasts = lasts || c.subjects[i].health == Failing && c.decision.Endpoints[i].Listed
	}
	if !c.void || !lasts {
		return
	}
	for i := range c.subjects {
		s, e := &c.subjects[i], &c.decision.Endpoints[i]
		if s.health == Unjudged && s.held != nil && s.held.Conditions.Ready && e.Verdict == Drain {
			e.Verdict, e.Conditions, e.Zone, e.Rule = Hold, s.held.Conditions, s.held.Zone, RulePanic
			c.spares++
		}
	}
}

// resort promises that in a panic a source's word does not take the last endpoint of use while
// there is one that nobody calls dead: what is out because of a failure has only the prober
// against it, who is not believed now. Those come first that their source calls READY.
func (c *court) resort() {
	if !c.void {
		return
	}
	const none = 2
	best, ranks := none, make([]int, len(c.subjects))
	for i := range c.subjects {
		if e := &c.decision.Endpoints[i]; e.Listed && !isOut(e.Conditions) {
			return
		}
		ranks[i] = none
		switch s, word := &c.subjects[i], c.word(i); {
		case s.held == nil && (s.past == nil || !s.past.out):
		case c.decision.Endpoints[i].Verdict == Gone, word == NotReady:
		case word == Ready:
			ranks[i] = 0
		default:
			ranks[i] = 1
		}
		best = min(best, ranks[i])
	}
	for i := range c.subjects {
		if e := &c.decision.Endpoints[i]; best < none && ranks[i] == best {
			e.Verdict, e.Conditions, e.Listed, e.Rule = Hold, ready, true, RulePanic
			c.spares++
		}
	}
}

// word is what the source of a subject says of it, if it is believed; else Unknown.
func (c *court) word(subject int) State {
	owner := c.subjects[subject].owner
	if owner == nobody || !c.sources[owner].believed() {
		return Unknown
	}
	if m := c.claimed(subject, owner); m != nil {
		return m.State
	}
	return unlisted
}

// panics tells of a panic.
func (c *court) panics() (Guard, bool) {
	return Guard{Rule: RulePanic, Held: c.spares, Message: fmt.Sprintf(
		"No probe of this Service passes, which usually means the writer cannot reach the backends. Probe failures are ignored and "+
			"%d endpoints stay in use. Check the network between writer and backends, then the backends.", c.spares)}, c.void && c.spares > 0
}
