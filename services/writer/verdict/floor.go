package verdict

import "fmt"

// floor promises that something stays ready while anything could be: whatever the rest of
// the rules made of it, a target that has an endpoint that answers (without probes: any at
// all) does not go without a ready one. So draining everything at once changes nothing,
// and consumers that do not know the draining tier are not cut off. It never prefers an
// endpoint that fails, and never keeps one that the fence refuses.
//
// Of each kind those come first of which a source has spoken. One that is only held as it was
// would be ready by itself the next time, and then the others would go.
func (c *court) floor() {
	const none = 8
	best, answers := none, false
	ranks := make([]uint8, len(c.subjects))
	for i := range c.subjects {
		s, e := &c.subjects[i], &c.decision.Endpoints[i]
		ranks[i] = none
		if e.Listed && e.Conditions.Ready {
			return
		}
		if !c.mayKeep(s, e) {
			continue
		}
		drains := e.Listed && e.Conditions == draining
		readyNow := s.held != nil && s.held.Conditions.Ready && s.health != Failing
		switch {
		case drains && readyNow:
			ranks[i] = 0
		case drains && (s.health == Passing || s.health == off):
			ranks[i] = 2
		case readyNow:
			ranks[i] = 4
		case s.held != nil && s.health == Passing:
			ranks[i] = 6
		}
		if s.keeps && ranks[i] != none {
			ranks[i]++
		}
		best = min(best, int(ranks[i]))
		answers = answers || s.health == Passing || s.health == off || s.held != nil && s.health == Unjudged && !isOut(s.held.Conditions)
	}
	if !answers || best == none {
		return
	}
	for i := range c.subjects {
		if int(ranks[i]) != best {
			continue
		}
		s, e := &c.subjects[i], &c.decision.Endpoints[i]
		e.Verdict = Serve
		if s.held != nil {
			e.Verdict = Hold
		}
		e.Conditions, e.Listed, e.Rule = ready, true, RuleFloor
		c.floored++
	}
}

// mayKeep reports whether the floor may keep an endpoint ready: it is allowed, it is or may be listed, no
// resync removes it, and, without probes, its source has not confirmed that it is empty.
func (c *court) mayKeep(s *subject, e *Endpoint) bool {
	switch {
	case e.Rule == RuleFence, s.held == nil && !e.Listed:
		return false
	case e.Verdict == Gone && (c.resyncs || s.freed):
		return false
	}
	return s.health != off || !c.emptied(s.owner)
}

// emptied says whether a source has confirmed that it has nothing for this target.
func (c *court) emptied(source int) bool {
	return source != nobody && c.sources[source].emptied
}

// floors tells of what the floor keeps.
func (c *court) floors() (Guard, bool) {
	return Guard{Rule: RuleFloor, Held: c.floored, Message: fmt.Sprintf(
		"No endpoint of this Service would be ready: all are draining or no longer listed, though they may still answer. %d "+
			"are kept ready until another one is. To empty the Service, delete it or opt it out.", c.floored)}, c.floored > 0
}
