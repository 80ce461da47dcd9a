package oracle

import (
	"maps"
	"net/netip"
	"time"
)

// explained judges a change of one address by §5: the writer's knowledge has to call for it.
// What is held can be read in three ways, and each is right in its own case: what the slices
// were when the plan was made; what they were when it took effect; and what our own writes had made of them
// before someone else edited them. To a new leader all that the slices list is our own (§5, held).
func (o *Oracle) explained(f Wrote, p *plan, t *target, c change, before map[netip.Addr]held) {
	if c.from == c.to {
		return // only the label: whose it is follows from what the sources tell
	}
	ours, is := t.ours[c.address]
	foreign := is != c.is || is && ours.as() != c.from
	if foreign && (is && ours.as() == c.to || !is && !c.to.listed) {
		return // repaired
	}
	if !c.from.listed {
		o.known(f, c)
	}
	if t.mends(c) {
		return
	}
	if p.calls(t, c, p.held, *p.made()) || p.calls(t, c, before, p.decide(before)) {
		return
	}
	restored := maps.Clone(t.ours)
	for a, h := range p.aim.found {
		if _, is := restored[a]; !is { // someone else had added it, which nobody can tell from ours
			restored[a] = h
		}
	}
	if p.calls(t, c, restored, p.decide(restored)) {
		return
	}
	r := p.made()
	invariant, rule, sentence := p.blame(c, r)
	o.broke(invariant, rule, sentence, "%s made %s %s, which was %s; the feed says %s, the probe %s, and the table %s",
		f.Writer, c.address, c.to, c.from, p.says(c.address, c.owner(), r.void), p.verdict(c.address), r.fates[c.address])
}

// mends reports whether a change undoes one that came late. There is no fencing token (§6): what was sent in
// time can land in the next term, the same writer's too, and where it lands on an untouched slice the new
// leader mends it.
func (t *target) mends(c change) bool {
	before := t.past[c.address]
	return before.late && before.as == c.to
}

// late reports whether the term in which a plan was made is over, or another writer's has begun since.
func (o *Oracle) late(p *plan) bool {
	if w := p.writer; o.writers[p.Writer] != w || !w.leads || w.ledSince.After(p.led) {
		return true
	}
	for _, w := range o.writers {
		if w.leads && w.ledSince.After(p.led) {
			return true
		}
	}
	return false
}

// owner is the label that an address bore, or bears now if it is new.
func (c change) owner() string {
	if c.is {
		return c.was.source
	}
	return c.label
}

// known judges I1: what is added has been told by the source whose label it bears.
func (o *Oracle) known(f Wrote, c change) {
	if !o.source(c.label).told[c.address] {
		o.broke("I1", "never told", "no address that no source has told is added",
			"%s added %s under the label of %s", f.Writer, c.address, c.label)
	}
}

// calls reports whether the change is called for, given what is held.
func (p *plan) calls(t *target, c change, all map[netip.Addr]held, r result) bool {
	h, is := all[c.address]
	want := r.fates[c.address]
	if p.equal(c.to, want) || is && c.to == h.as() {
		return true
	}
	if _, kept := r.floor[c.address]; kept && c.to == serve {
		return true
	}
	if is && r.words[c.address] == hold && h.as() == out && p.verdict(c.address) == Passing && p.last(c, h, r.void) {
		return true
	}
	if r.void.acts() && p.spares(t, c, h, is, r) {
		return true
	}
	// A panic gives back what failures took that all began after the last success.
	if had, ok := t.had[c.address]; ok && r.void.acts() && (h.as() == out || !is && p.config.NoOut) && c.to == had.as() {
		return p.verdict(c.address) == Failing && p.probes[c.address].FailingSince.After(p.lastSuccess(all))
	}
	return false
}

// last reports whether a change is what the last trusted word makes of one that is out and passes: nothing, where
// that word was its absence (§5, hold). A view that is empty, and not often enough, is no such word (guard 4:
// as from a source that is not trusted); then the one before it was.
func (p *plan) last(c change, h held, void panicking) bool {
	as := func(view map[netip.Addr]*Member) bool {
		m := view[c.address]
		switch c.to {
		case gone:
			return view != nil && (m == nil || !selects(p.config.Selector, m.Labels))
		case drain:
			return m != nil && m.State == Draining
		}
		return c.to == serve && m != nil && m.State != Draining
	}
	if t := p.told[h.source]; t != nil && as(t.word) {
		return true
	}
	blank, confirmed := p.blank(h.source, void)
	return blank && !confirmed && as(p.spoken[h.source])
}

// spares reports whether a change is right in a panic though the table has the endpoint stay as it is.
// One that drains and is not judged yet follows its source when the panic ends with the last that
// fails, which goes by the same decision. And when nothing would be of use any more, what is out becomes
// ready that not every witness who can speak calls dead (§8, I2): the prober cannot. Where nothing is listed
// as out, so does what was taken out, not what its source has left out since (decision 0001).
func (p *plan) spares(t *target, c change, h held, is bool, r result) bool {
	word := r.words[c.address]
	if !is {
		had, taken := t.had[c.address]
		told := p.told[had.source]
		if !taken || !p.config.NoOut || told == nil || told.word[c.address] == nil {
			return false
		}
		word = p.says(c.address, had.source, r.void)
	}
	lasts, useful := false, false
	for a, f := range r.fates {
		lasts = lasts || p.verdict(a) == Failing && !p.equal(f, gone)
		useful = useful || f.listed && rank(f.Conditions) > 0
	}
	switch c.to {
	case drain:
		return is && !lasts && word == saysDraining && p.verdict(c.address) == Unjudged
	case serve:
		return !useful && h.as() == out && !p.dead(c.address, word, r.void)
	}
	return false
}

// lastSuccess is when any endpoint of the target passed last.
func (p *plan) lastSuccess(all map[netip.Addr]held) time.Time {
	var last time.Time
	see := func(a netip.Addr) {
		if passed := p.probes[a].LastPassed; passed.After(last) {
			last = passed
		}
	}
	for a := range all {
		see(a)
	}
	for a := range p.candidates(all, nil) {
		see(a)
	}
	return last
}

// equal is equality of fates where endpoints that are out may not be listed.
func (p *plan) equal(a, b fate) bool {
	if p.config.NoOut {
		if a == out {
			a = gone
		}
		if b == out {
			b = gone
		}
	}
	return a == b
}

// blame says which rule an uncalled change breaks.
func (p *plan) blame(c change, r *result) (invariant, rule, sentence string) {
	label := c.owner()
	t := p.told[label]
	leaves := c.from.listed && rank(c.to.Conditions) < rank(c.from.Conditions)
	switch {
	case r.void.acts() && leaves:
		return "I4", "panic", "while no probe passes, the prober's word takes nothing away"
	case leaves && (t == nil || !t.Ever):
		return "I4", "initial-sync", "a source that was never synced changes nothing"
	case leaves && !p.trusted(label):
		return "I4", "trust", "a source that cannot be trusted changes nothing"
	case leaves && !p.believed(label, r.void):
		return "I4", "empty", "emptiness is believed after enough complete observations, far enough apart"
	case !c.from.listed && (t == nil || !p.trusted(label)):
		return "I4", "trust", "only a trusted source adds an endpoint"
	case !c.from.listed && p.probing() && p.verdict(c.address) != Passing:
		return "I3", "table", "a new endpoint is listed only when its probe passes"
	}
	return "I3", "table", "a write does what the table calls for, and nothing else"
}
