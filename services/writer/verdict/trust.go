package verdict

import (
	"fmt"
	"slices"
	"time"
)

// emptyGap is how far apart, by our clock, observations must come to count as two.
const emptyGap = 4 * time.Second

// observed is what is remembered of a source's complete observations.
type observed struct {
	source string
	epoch  string
	// last is the observation that counted last; before any did, the one in force when
	// the view was last seen not to be empty, or first seen at all: what came before the view
	// was empty does not speak for its being so.
	last  uint64
	count int       // observations in a row that say "empty"
	at    time.Time // when the last of them was received
}

// gate keeps sources from speaking that were not synced since this process started, and
// finds out which of the others can be believed by themselves.
func (c *court) gate() {
	for i := range c.sources {
		w := &c.sources[i]
		w.doubt = w.distrust(c.in.Limits.MaxStaleness, c.now)
		if c.in.Rejected {
			w.doubt = "the Service is rejected"
		}
		w.trusted = w.doubt == ""
		if !w.Heard {
			w.rule, w.why = RuleGate, w.doubt
		}
	}
}

// empty counts the observations that say that a source has nothing for this target, and
// keeps it from speaking until they are enough.
func (c *court) empty() {
	for i := range c.sources {
		w := &c.sources[i]
		if !w.believed() {
			w.observed = c.remembered(w)
			continue
		}
		empty := c.isEmpty(i)
		w.observed = c.remembered(w).observe(w, empty)
		switch {
		case !empty || !w.trusted:
		case w.observed.count < c.in.Limits.EmptyThreshold && !c.resyncs:
			w.rule, w.why = RuleEmpty, "empty, not confirmed yet"
		default:
			w.emptied = true
		}
	}
}

// isEmpty says whether a source has nothing for this target that could serve. What its
// fence refuses counts for nothing: otherwise a lie outside the fence would do what
// an empty one may not. A node that is not ready could serve if its probe does not say no, too.
// Whether that no is void makes no difference: it may cease to be by what is decided here. But
// while a panic keeps one of the source's own endpoints, and so goes on, it takes a probe that
// passes: what is not judged yet must not let the last one go without the looks that this takes.
func (c *court) isEmpty(source int) bool {
	keeps := c.void && c.stakes(source)
	for i := range c.subjects {
		m, health := c.claimed(i, source), c.subjects[i].health
		if m != nil && (m.State != NotReady || health == Passing || health == Unjudged && !keeps) {
			return false
		}
	}
	return true
}

// stakes says whether a source has an endpoint in use that fails its probe.
func (c *court) stakes(source int) bool {
	return slices.ContainsFunc(c.subjects, func(s subject) bool {
		return s.label == source && s.refused != source && s.held != nil && !isOut(s.held.Conditions) && s.health == Failing
	})
}

// remembered returns what is known of a source's observations from before; of a source, or
// an epoch, that is met for the first time that is the observation in force.
func (c *court) remembered(w *witness) observed {
	for _, o := range c.past.sources {
		if o.source == w.Name && o.epoch == w.Epoch {
			return o
		}
	}
	return observed{source: w.Name, epoch: w.Epoch, last: w.Observation}
}

// observe takes into account what a source that was heard says now.
func (o observed) observe(w *witness, empty bool) observed {
	switch {
	case !empty:
		o.last, o.count = w.Observation, 0
	case w.trusted && w.Observation > o.last && (o.count == 0 || w.ObservationAt.Sub(o.at) >= emptyGap):
		o.last, o.at = w.Observation, w.ObservationAt
		o.count++
	}
	return o
}

// distrust says why a source cannot be believed by itself; empty: it can.
func (w *witness) distrust(maxStaleness time.Duration, now time.Time) (why string) {
	switch {
	case !w.Heard:
		why = "not synced yet"
	case !w.Alive:
		why = "link down"
	case !w.MembershipSynced:
		why = "membership not synced"
	case now.Sub(w.MembershipAt) > maxStaleness:
		why = "last synced membership is older than MAX_STALENESS"
	}
	return why
}

// trust keeps sources from speaking that cannot be believed at present.
func (c *court) trust() {
	for i := range c.sources {
		if w := &c.sources[i]; !w.trusted && w.believed() {
			w.rule, w.why = RuleTrust, "not trusted: "+w.doubt
		}
	}
}

// guard returns what a guard has to tell of this source; false: it does not act.
func (w *witness) guard(rule Rule) (Guard, bool) {
	if rule == RuleFence {
		return Guard{Rule: rule, Source: w.Name, Held: w.refused, Message: fmt.Sprintf(
			"Source %s reports %d addresses that are not allowed, for example %s (%s). They are never written. "+
				"If they are correct, extend this writer's allowlist.", w.Name, w.refused, w.example, w.cause)}, w.refused > 0
	}
	g := Guard{Rule: rule, Source: w.Name, Held: w.holds}
	switch rule {
	case RuleGate:
		g.Message = fmt.Sprintf("Source %s has not synced since this writer started. Its %d endpoints are kept; only probes change them. "+
			"If this persists, check the link to its inventory.", w.Name, w.holds)
	case RuleEmpty:
		g.Message = fmt.Sprintf("Source %s reports no usable nodes for this Service (%d complete observations so far). Its %d endpoints are kept "+
			"until enough observations confirm it (EMPTY_RESULT_THRESHOLD). If this is unexpected, check its inventory.", w.Name, w.observed.count, w.holds)
	case RuleTrust:
		g.Message = fmt.Sprintf("Source %s is %s. Its %d endpoints are kept; only probes change them. Check its inventory and the link to it.", w.Name, w.why, w.holds)
	}
	return g, w.rule == rule && w.holds > 0
}
