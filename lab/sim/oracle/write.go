package oracle

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// kept is how many plans are remembered: a request is answered or given up in seconds (§6).
const kept = 64

// plan notes what a writer knows at the moment at which it plans writes.
func (o *Oracle) plan(f Planned) {
	p := o.snapshot(f)
	o.plans[f.Plan] = p
	o.recent = append(o.recent, f.Plan)
	if len(o.recent) > kept {
		delete(o.plans, o.recent[0])
		o.recent = o.recent[1:]
	}
	if !p.leads {
		o.broke("I4", "leader", "only who leads writes", "%s planned %d writes to %s", f.Writer, f.Writes, f.Target)
	}
}

func (o *Oracle) snapshot(f Planned) *plan {
	w, t := o.writer(f.Writer), o.target(f.Target)
	a := w.aim(f.Target)
	p := &plan{
		Planned: f, at: o.now, writer: w, aim: a, config: a.Configured, leads: w.leads, led: w.ledSince, version: a.version,
		told: maps.Clone(w.told), empty: make(map[string]emptiness, len(a.emptiness)),
		probes: maps.Clone(w.probes[a.Probe]), fences: maps.Clone(w.fences), dropped: map[string]map[netip.Addr]map[string]string{}, ready: map[string]int{},
		spoken: maps.Clone(a.spoken), held: t.union(), unnoticed: t.unnoticed(a),
	}
	p.mine = t.mine(p.held)
	for name, e := range a.emptiness {
		p.empty[name] = *e
	}
	for name, d := range a.dropped {
		p.dropped[name] = maps.Clone(d)
	}
	for _, h := range p.held {
		if h.Ready {
			p.ready[h.source]++
		}
	}
	return p
}

// made is the result of §5 for what was held when the plan was made.
func (p *plan) made() *result {
	if p.result == nil {
		r := p.decide(p.held)
		p.result = &r
	}
	return p.result
}

// change is what a write makes of one address.
type change struct {
	address  netip.Addr
	was      held
	is       bool // was listed before
	from, to fate
	label    string // after it
}

// wrote judges a write that took effect.
func (o *Oracle) wrote(f Wrote) {
	t := o.target(f.Target)
	p := o.plans[f.Plan]
	if p == nil {
		p = o.snapshot(Planned{Writer: f.Writer, Target: f.Target, Plan: f.Plan})
	}
	before := t.union()
	t.put(f.Slice, f.After)
	after := t.union()
	changes := changed(f, before, after)

	o.sent(f, p)
	o.needed(f, p, t, before, changes)
	o.fenced(f, p)
	switch {
	case p.config.Out:
		if f.After != nil {
			o.broke("I3", "opted out", "slices of a target that opted out are only deleted", "%s wrote %s", f.Writer, f.Slice)
		}
	default:
		for _, c := range changes {
			o.explained(f, p, t, c, before)
		}
		delete(p.unnoticed, f.Slice) // it has not changed since it was read, or the request would have been refused
		o.remains(f, p, t.mine(before), after, t.held(p))
		o.budget(f, p, t, changes)
	}
	t.edits = slices.DeleteFunc(t.edits, func(e edit) bool { return e.slice == f.Slice })
	// With the last of a plan's writes all that was booked before is written; at the same moment it may have been
	// after, and whom the floor keeps goes later.
	if p.landed++; p.complete() && !slices.Contains(p.aim.acts, "floor") {
		p.aim.booked = slices.DeleteFunc(p.aim.booked, func(b booking) bool { return b.at.Before(p.at) })
	}
	t.last = p.writer
	t.turned(f, p, changes, after, o)
}

// changed are the addresses that a write changes for consumers, in order.
func changed(f Wrote, before, after map[netip.Addr]held) []change {
	var changes []change
	seen := map[netip.Addr]bool{}
	look := func(s *Slice) {
		if s == nil {
			return
		}
		for _, e := range s.Endpoints {
			if seen[e.Address] {
				continue
			}
			seen[e.Address] = true
			c := change{address: e.Address}
			if c.was, c.is = before[e.Address]; c.is {
				c.from = c.was.as()
			}
			if h, ok := after[e.Address]; ok {
				c.to, c.label = h.as(), h.source
			}
			if c.from != c.to || c.is && c.to.listed && c.label != c.was.source {
				changes = append(changes, c)
			}
		}
	}
	look(f.Before)
	look(f.After)
	slices.SortFunc(changes, func(a, b change) int { return a.address.Compare(b.address) })
	return changes
}

// sent judges who wrote: leadership is checked just before sending (§6).
func (o *Oracle) sent(f Wrote, p *plan) {
	w := p.writer
	if o.writers[f.Writer] != w {
		return // that process is gone; what it had sent may still land
	}
	if !w.leads && !f.Sent.IsZero() && f.Sent.After(w.ledUntil) {
		o.broke("I4", "leader", "only who leads writes", "%s sent a write to %s after it had ceased to lead", f.Writer, f.Slice)
	}
	if p.config.Paused {
		o.broke("I3", "paused", "a Service that is paused is not written at all", "%s wrote %s", f.Writer, f.Slice)
	}
}

// needed judges I3: a write that changes nothing of a slice, one that only shuffles endpoints
// between slices, one that puts back what the same writer took away though nothing changed.
func (o *Oracle) needed(f Wrote, p *plan, t *target, before map[netip.Addr]held, changes []change) {
	if f.Before != nil && f.After != nil && f.Before.same(f.After) {
		o.broke("I3", "no change", "without a semantic change there is no write", "%s wrote %s as it was", f.Writer, f.Slice)
		return
	}
	if f.Before == nil && f.After != nil && len(f.After.Endpoints) == 0 && len(t.slices) > 1 {
		o.broke("I3", "no change", "without a semantic change there is no write",
			"%s made %s, an empty slice beside others", f.Writer, f.Slice)
	}
	// A writer that has not seen yet what another one wrote may make what is there already.
	if alone := t.last == p.writer; alone && len(changes) == 0 && f.After != nil && (f.Before == nil || f.Before.Rest == f.After.Rest && f.Before.Source == f.After.Source) {
		for _, e := range f.After.Endpoints {
			if h, ok := before[e.Address]; ok && !f.Before.lists(e.Address) && h.slices > 0 && p.Writes == 1 {
				o.broke("I3", "no change", "without a semantic change there is no write",
					"%s only copied %s into %s", f.Writer, e.Address, f.Slice)
			}
		}
	}
	for _, c := range changes {
		last, ok := t.turns[c.address]
		if ok && last.writer == p.writer && last.version == p.version && last.from == c.to && c.from != c.to {
			o.broke("I3", "flap", "what a writer changed it does not change back while it knows nothing new",
				"%s made %s %s again", f.Writer, c.address, c.to)
		}
	}
}

// fenced judges I1: whoever sent it, nothing outside of the fence is ever written. And the
// fence's exception (§5, guard 1): one that would take all that is held is a typing mistake.
func (o *Oracle) fenced(f Wrote, p *plan) {
	if f.After == nil || p.config.Out {
		return
	}
	if p.frozen() {
		o.broke("I4", "allowlist", "a target whose fence would take every held endpoint is not written",
			"%s wrote %s", f.Writer, f.Slice)
		return
	}
	for _, e := range f.After.Endpoints {
		if !p.inside(f.After.label(), e.Address) {
			o.broke("I1", "allowlist", "no address outside the fence is written",
				"%s wrote %s of source %s", f.Writer, e.Address, f.After.label())
		}
	}
}

// frozen reports whether the fences exclude all that is held. What someone else added is not held (§5), but
// a writer that has no word on the slices yet takes it so.
func (p *plan) frozen() bool {
	for a, h := range p.held {
		if p.inside(h.source, a) {
			return false
		}
	}
	return len(p.mine) > 0
}

// remains judges I2, and the floor, where a write takes the last endpoint away. What someone
// else added is not held (§5), and is no loss. What someone else took is held still (§5): that nothing is
// usable is not the doing of a writer that could not know it yet.
func (o *Oracle) remains(f Wrote, p *plan, before, after, held map[netip.Addr]held) {
	if ready(before) == 0 && !usable(before) || ready(after) > 0 || ready(held) > 0 {
		return
	}
	r := p.decide(before)
	if usable(before) && !usable(after) && !usable(held) {
		for _, a := range addresses(before) {
			if h := before[a]; o.alive[a] && p.inside(h.source, a) && p.family(a) && !p.dead(a, r.words[a], r.void) {
				o.broke("I2", "never none", "the Service never has no usable endpoint while a held one is alive and a witness stands by it",
					"%s wrote %s, and none is usable; %s is alive, the feed says %s, the probe %s",
					f.Writer, f.Slice, a, r.words[a], p.verdict(a))
				return
			}
		}
	}
	if ready(before) > 0 && len(r.floor) > 0 {
		o.broke("I4", "floor", "a result without a ready endpoint is not written while one passes, or is not judged yet",
			"%s wrote %s, and none is ready; the floor keeps %s", f.Writer, f.Slice, addresses(r.floor)[0])
	}
}

// dead reports whether every witness that can speak calls an address dead (I2): the control
// plane, if trusted, by NOT_READY or absence; the probe, unless void. When none can speak,
// nobody has called it dead.
func (p *plan) dead(a netip.Addr, w word, void panicking) bool {
	witnesses, against := 0, 0
	if w != hold {
		witnesses++
		if w == absent || w == saysNotReady {
			against++
		}
	}
	if v := p.verdict(a); v == Passing || v == Failing && !void.acts() {
		witnesses++
		if v == Failing {
			against++
		}
	}
	return witnesses > 0 && witnesses == against
}

// turned remembers what the write made of each address.
func (t *target) turned(f Wrote, p *plan, changes []change, after map[netip.Addr]held, o *Oracle) {
	for _, c := range changes {
		was, is := t.ours[c.address]
		if is == c.to.listed && (!is || was.as() == c.to) {
			continue // what someone else had altered is as it was
		}
		mends, late := t.mends(c), o.late(p)
		t.past[c.address] = past{as: c.from, late: late}
		switch {
		case mends || late:
			delete(t.turns, c.address)
		case c.from != c.to:
			t.turns[c.address] = turn{writer: p.writer, version: p.version, from: c.from}
		}
	}
	for _, s := range []*Slice{f.Before, f.After} {
		if s == nil {
			continue
		}
		for _, e := range s.Endpoints {
			h, ok := after[e.Address]
			was, is := t.ours[e.Address]
			if !is {
				was, is = p.aim.found[e.Address]
			}
			delete(p.aim.found, e.Address)
			if is && was.as() != out && (!ok || h.as() == out) {
				t.had[e.Address] = was // also where someone else had put it out, and the write leaves it so
			}
			if ok {
				t.ours[e.Address] = h
			} else {
				delete(t.ours, e.Address)
			}
		}
	}
	t.rest(f, o)
}

// rest judges I3 of what a slice is besides what it lists, and remembers it.
func (t *target) rest(f Wrote, o *Oracle) {
	if f.After == nil {
		delete(t.rests, f.Slice)
		return
	}
	if f.Before.passes(f.After) {
		delete(t.rests, f.Slice)
	}
	if f.Before != nil && f.Before.Rest != f.After.Rest && slices.Contains(t.rests[f.Slice], f.After.Rest) {
		o.broke("I3", "flap", "what was written once is not written again", "%s gave %s back %s", f.Writer, f.Slice, f.After.Rest)
	}
	if rests := t.rests[f.Slice]; len(rests) == 0 || rests[len(rests)-1] != f.After.Rest {
		t.rests[f.Slice] = append(rests, f.After.Rest)
	}
}

// same reports whether two slices mean the same, whatever their order.
func (s *Slice) same(u *Slice) bool {
	if s.Source != u.Source || s.Rest != u.Rest || len(s.Endpoints) != len(u.Endpoints) {
		return false
	}
	for _, e := range s.Endpoints {
		if !slices.Contains(u.Endpoints, e) {
			return false
		}
	}
	return true
}

// passes reports whether a slice goes from one source to another: what it listed leaves, or comes. Its label
// goes with that (§6), as often as the sources have it so.
func (s *Slice) passes(to *Slice) bool {
	if s == nil || s.Source == to.Source || len(s.Endpoints)+len(to.Endpoints) == 0 {
		return false
	}
	return !slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return to.lists(e.Address) })
}

func (s *Slice) lists(a netip.Addr) bool {
	return s != nil && slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Address == a })
}

// label is the source of a slice; without a label it is the one named default (§6).
func (s *Slice) label() string {
	if s.Source == "" {
		return "default"
	}
	return s.Source
}

// addresses are the keys in order.
func addresses[V any](m map[netip.Addr]V) []netip.Addr {
	return slices.SortedFunc(maps.Keys(m), netip.Addr.Compare)
}

func (f fate) String() string {
	switch f {
	case serve:
		return "serve"
	case drain:
		return "drain"
	case out:
		return "out"
	case gone:
		return "gone"
	}
	return fmt.Sprintf("ready=%t serving=%t terminating=%t", f.Ready, f.Serving, f.Terminating)
}

func (w word) String() string {
	return [...]string{"nothing that counts", "absent", "READY", "DRAINING", "NOT_READY"}[w]
}

func (v Verdict) String() string { return [...]string{"not judged yet", "passing", "failing"}[v] }
