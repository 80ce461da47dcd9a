package verdict

import (
	"fmt"
	"slices"
	"time"
)

// window is the shrink guard's account of one source.
type window struct {
	source   string
	selector string
	opened   time.Time // zero: none was, since we lead
	budget   int
	left     int // endpoints that were let go in it
	// epoch and observation were in force when the last of them was.
	epoch       string
	observation uint64
}

// shrink promises that a source's word alone never takes more than half of its endpoints
// (or one) out of the ready ones in one window, by whatever route they leave; that the next
// half takes a newer observation; and that a new leader, who cannot know what the last one let
// go, lets nobody go in its first window. What the probes call dead too, what the
// fence refuses, what our own settings drop and an empty source that has been confirmed are
// none of its business.
func (c *court) shrink() {
	c.memory.windows = make([]window, len(c.sources))
	ready, leaving := c.leavers()
	for j := range c.sources {
		w := c.account(j)
		c.settle(j, &w, ready[j], leaving[j])
		c.memory.windows[j] = w
	}
}

// leavers counts for each source what it has ready, and lists what would leave on its word
// alone, those first whose present state we have known longest.
func (c *court) leavers() (ready []int, leaving [][]int) {
	ready, leaving = make([]int, len(c.sources)), make([][]int, len(c.sources))
	if c.in.Limits.ShrinkWindow <= 0 {
		return ready, leaving
	}
	for i := range c.subjects {
		s, e := &c.subjects[i], &c.decision.Endpoints[i]
		if s.held == nil || !s.held.Conditions.Ready || s.label == nobody {
			continue
		}
		ready[s.label]++
		stays := e.Listed && e.Conditions.Ready
		dead := s.health == Failing && !c.void
		if !stays && !dead && !s.ours && !s.freed && s.refused != s.label && !c.emptied(s.label) {
			leaving[s.label] = append(leaving[s.label], i)
		}
	}
	for _, all := range leaving {
		slices.SortStableFunc(all, func(a, b int) int { return c.subjects[a].since.Compare(c.subjects[b].since) })
	}
	return ready, leaving
}

// account returns what is remembered of a source's window, under this leader.
func (c *court) account(source int) window {
	name := c.sources[source].Name
	for _, w := range c.past.windows {
		if w.source == name && !w.opened.Before(c.in.LeadingSince) {
			return w
		}
	}
	return window{source: name}
}

// settle lets go of one source what may leave now, and holds the rest.
func (c *court) settle(source int, w *window, ready int, leaving []int) {
	from := &c.sources[source]
	w.selector = from.Selector
	size := c.in.Limits.ShrinkWindow
	leads := !c.in.LeadingSince.IsZero()
	first := c.now.Before(c.in.LeadingSince.Add(size))
	open := !w.opened.IsZero() && c.now.Before(w.opened.Add(size))
	newer := w.opened.IsZero() || from.Epoch != w.epoch || from.Observation > w.observation
	ends := w.opened.Add(size)
	switch {
	case len(leaving) == 0:
	case !leads: // nothing is written; the leader decides
	case first:
		ends = c.in.LeadingSince.Add(size)
	case !open && newer:
		w.opened, w.budget, w.left, open = c.now, max(1, ready/2), 0, true
		ends = w.opened.Add(size)
		for i := range c.subjects {
			if s := &c.subjects[i]; s.label == source {
				s.booked = false
			}
		}
	}
	may := open && leads && !first
	for _, i := range leaving {
		s := &c.subjects[i]
		switch {
		case may && s.booked: // let go before, but it has not been written yet
			continue
		case may && w.left < w.budget:
			s.booked = true
			w.left++
			w.epoch, w.observation = from.Epoch, from.Observation
			continue
		}
		c.hold(s, &c.decision.Endpoints[i])
		from.kept++
	}
	if from.kept == 0 {
		return
	}
	from.first = first
	if may || first {
		c.wake(ends)
	} else if leads {
		from.wanted = true
	}
}

// hold keeps an endpoint as it is.
func (c *court) hold(s *subject, e *Endpoint) {
	e.Verdict, e.Rule, e.Listed = Hold, RuleShrink, true
	e.Conditions, e.Source, e.Zone = s.held.Conditions, labelled(s.held), s.held.Zone
}

// shrinks tells of what the shrink guard holds of a source.
func (c *court) shrinks(source int) (Guard, bool) {
	from, size := &c.sources[source], c.in.Limits.ShrinkWindow
	why := fmt.Sprintf("at most half of the ready endpoints (at least one) per %s, each further batch after a newer "+
		"observation", size)
	if from.first {
		why = fmt.Sprintf("none in the first %s of a new leader, which cannot know earlier removals", size)
	}
	return Guard{Rule: RuleShrink, Source: from.Name, Held: from.kept, Message: fmt.Sprintf(
		"Source %s drains or removes %d more ready endpoints than SHRINK_WINDOW allows on its report alone: %s. They stay "+
			"ready for now. If this is unexpected, check its inventory.", from.Name, from.kept, why)}, from.kept > 0
}
