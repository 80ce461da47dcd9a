package oracle

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// change is what a write makes of one address.
type change struct {
	address  netip.Addr
	was      held
	is       bool // was listed before
	from, to fate
	label    string // after it
	port     uint16 // after it; 0: it is gone
	moved    bool   // to another port
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
	changes := changed(before, after)
	for i := range changes { // what was listed there before has not moved
		changes[i].moved = changes[i].moved && !p.listed[netip.AddrPortFrom(changes[i].address, changes[i].port)]
	}
	p.landed++
	p.before = before
	t.moved(f, p)

	o.sent(f, p)
	o.needed(f, p, t, before, changes)
	o.fenced(f, p)
	if p.config.Out {
		if f.After != nil {
			o.broke("I3", "opted out", "slices of a target that opted out are only deleted", "%s wrote %s", f.Writer, f.Slice)
		}
	} else {
		for _, c := range changes {
			o.added(f, p, t, c)
			o.left(f, p, t, c, after)
		}
		delete(p.unnoticed, f.Slice) // it has not changed since it was read, or the request would have been refused
		o.remains(f, p, t.mine(before), after)
	}
	t.edits = slices.DeleteFunc(t.edits, func(e edit) bool { return e.slice == f.Slice })
	if o.late(p) { // to who leads now it is as an edit by someone else
		t.edits = append(t.edits, edit{f.Slice, f.Version})
	}
	if p.complete() && !slices.Contains(p.aim.acts, "floor") { // whom the floor keeps goes later
		p.aim.written = p.at
	}
	t.last = p.writer
	t.turned(f, p, changes, after, o)
}

// changed are the addresses that a write changes for consumers, in order.
func changed(before, after map[netip.Addr]held) []change {
	either := maps.Clone(before)
	maps.Copy(either, after)
	var changes []change
	for _, a := range addresses(either) {
		was, is := before[a]
		now, stays := after[a]
		moved := is && stays && was.port != now.port
		if is != stays || was.Conditions != now.Conditions || was.source != now.source || moved {
			changes = append(changes, change{a, was, is, was.as(is), now.as(stays), now.source, now.port, moved})
		}
	}
	return changes
}

// sent judges who wrote: leadership is checked just before sending (high-availability.md).
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
	if t.last == p.writer && len(changes) == 0 && f.After != nil &&
		(f.Before == nil || f.Before.Rest == f.After.Rest && f.Before.Source == f.After.Source && f.Before.Port == f.After.Port) {
		for _, e := range f.After.Endpoints {
			if h, ok := before[e.Address]; ok && !f.Before.lists(e.Address) && h.slices > 0 && p.Writes == 1 {
				o.broke("I3", "no change", "without a semantic change there is no write",
					"%s only copied %s into %s", f.Writer, e.Address, f.Slice)
			}
		}
	}
	for _, c := range changes {
		last, ok := t.turns[c.address]
		if ok && last.writer == p.writer && last.version == p.version && last.expired == p.expiredSources() &&
			last.from == c.to && last.port == c.port && (c.from != c.to || c.moved) {
			o.broke("I3", "flap", "what a writer changed it does not change back while it knows nothing new",
				"%s made %s %s again", f.Writer, c.address, c.to)
		}
	}
}

// fenced judges I1: whoever sent it, nothing outside of the fence is ever written. And the
// fence's exception (decision-rules.md#allowlist): one that would take all that is held is a typing mistake.
func (o *Oracle) fenced(f Wrote, p *plan) {
	if f.After == nil || p.config.Out {
		return
	}
	if p.frozen() {
		o.broke("I4", "allowlist", "a target whose fence would take every held endpoint is not written",
			"%s wrote %s", f.Writer, f.Slice)
		return
	}
	if len(f.After.Endpoints) > 0 && !allowed(p.fences, f.After.label(), f.After.Port) {
		o.broke("I1", "allowlist", "no port outside the fence is written", "%s wrote %s with port %d", f.Writer, f.Slice, f.After.Port)
	}
	for _, e := range f.After.Endpoints {
		if !p.inside(f.After.label(), e.Address) {
			o.broke("I1", "allowlist", "no address outside the fence is written",
				"%s wrote %s of source %s", f.Writer, e.Address, f.After.label())
		}
	}
}

// frozen reports whether the fences exclude all that is held. What someone else added is not held (decision-rules.md#what-is-current), but
// a writer that has no word on the slices yet takes it so.
func (p *plan) frozen() bool { return len(p.mine) > 0 && frozen(p.held, p.fences) }

func frozen(all map[netip.Addr]held, fences map[string]Fenced) bool {
	for a, h := range all {
		if h.inside(fences, a) {
			return false
		}
	}
	return true
}

// added judges I1, that its source has told what is added, and I4: only a trusted source adds, but for what our
// own writes have listed before.
func (o *Oracle) added(f Wrote, p *plan, t *target, c change) {
	if c.is && !c.moved || !c.to.listed {
		return
	}
	ours, counts := t.ours[c.address] // as written, whatever somebody has made of it
	if counts && ours.port == c.port && (c.moved || ours.as(true) == c.to) {
		return // repaired
	}
	if found, is := p.aim.inherited[c.address]; is && (found.port == c.port || p.config.ownPort(c.label) == c.port) {
		return // a term cannot know who wrote what it found at its start: it repairs that too, and follows our own ports
	}
	reported := c.moved && p.config.follows(c.label) && !t.mends(c)
	switch {
	case !o.hasTold(p.config, c):
		o.broke("I1", "never told", "no endpoint that no source has told is added", "%s added %s:%d under the label of %s", f.Writer,
			c.address, c.port, c.label)
	case reported && !p.tells(c):
		o.broke("I4", "port", "an endpoint moves only to the port that a trusted source tells", "%s moved %s from %d to %d", f.Writer,
			c.address, c.was.port, c.port)
	case reported && p.config.Probe != "" && p.probed(c.address, c.port) != Passing:
		o.broke("I4", "port", "a new port takes the place of another one once it passes", "%s moved %s from %d to %d", f.Writer, c.address,
			c.was.port, c.port)
	case c.moved:
	case !counts && p.tier(c.address, c.label) > 0 && p.certainBefore(p.tier(c.address, c.label)) >= p.config.FailoverBelow:
		o.broke("I4", "failover", "a later tier is added only while the earlier ones have too few ready endpoints",
			"%s added %s of %s", f.Writer, c.address, c.label)
	case !t.listed[c.address] && !p.trusted(c.label):
		o.broke("I4", "trust", "only a trusted source adds an endpoint", "%s added %s of %s", f.Writer, c.address, c.label)
	}
}

// hasTold reports whether its source has told of an endpoint at any time, and at that port if the target follows it.
func (o *Oracle) hasTold(is Configured, c change) bool {
	if is.follows(c.label) {
		return o.source(c.label).told[netip.AddrPortFrom(c.address, c.port)]
	}
	return is.ownPort(c.label) == c.port && o.source(c.label).told[netip.AddrPortFrom(c.address, 0)]
}

// tells reports whether a source that counts tells of an endpoint at its port now.
func (p *plan) tells(c change) bool {
	m := p.member(c.label, c.address)
	if m == nil || !p.believed(c.label) {
		return false
	}
	port, usable := p.config.port(c.label, m, p.fences)
	return usable && port == c.port
}

// left judges I4 where an endpoint becomes less than it was: a report has to call for that which counts, or our own
// configuration. The guard against shrinking is asked about what leaves on the source's report alone.
func (o *Oracle) left(f Wrote, p *plan, t *target, c change, after map[netip.Addr]held) {
	ours, is := t.ours[c.address]
	leaves := c.from.Ready && ours.Ready && (!c.to.Ready || c.moved && ours.port != c.port) && p.config.ShrinkWindow > 0
	if t.mends(c) {
		if leaves {
			o.budget(f, p, c, false) // the writer need not count what it has let go before, but may
		}
		return
	}
	label := c.was.source
	switch less := c.to.rank() < min(c.from.rank(), ours.as(true).rank()); {
	case !c.is, !is, !less && (!leaves || !c.moved): // what someone else added or altered is not held (decision-rules.md#what-is-current)
		return
	case p.ours(c.address, c.was), p.expired(label):
		return
	case !less:
		if p.config.follows(c.label) && !p.emptied(label) {
			o.budget(f, p, c, !p.failed(c.address, c.was.port))
		}
		return
	}
	if tier := p.tier(c.address, label); tier > 0 && !c.to.listed && readyBefore(p.config, tier, after) >= p.config.FailoverBelow {
		return // its tier is not needed
	}
	told, says := p.told[label], p.reported(c.address, label)
	at := p.judgedAt(c.was)
	if p.config.follows(label) && c.to.listed {
		at = c.port
	}
	judged := p.probed(c.address, at)
	failed := p.failed(c.address, at) || p.failedWhereListed(c.address) || t.halfMoved[netip.AddrPortFrom(c.address, c.was.port)]
	broke := func(rule, sentence string) {
		o.broke("I4", rule, sentence, "%s made %s %s, which was %s; the source reports %s, the probe is %s",
			f.Writer, c.address, c.to, c.from, says, judged)
	}
	switch {
	case says == absent || says == reportsDraining || says == reportsNotReady && judged != Passing:
		if leaves && !p.emptied(label) {
			o.budget(f, p, c, !failed && !p.failed(c.address, c.was.port))
		}
	case failed:
	case judged == Failing:
		broke("corroboration", "a failure that nothing corroborates takes nothing away")
	case told == nil || !told.Ever:
		broke("initial-sync", "a source that was never synced takes nothing away")
	case !p.trusted(label):
		broke("trust", "a source that cannot be trusted takes nothing away")
	case !p.believed(label):
		broke("empty", "emptiness is believed after enough complete observations, far enough apart")
	default:
		broke("reason", "nothing leaves without a report against it")
	}
}

// remains judges I2, and the floor, where a write takes the last endpoint away. What someone else added is not held
// (decision-rules.md#what-is-current), and is no loss. What someone else took is held still: that nothing is usable is not the doing of a writer that
// could not know it yet.
func (o *Oracle) remains(f Wrote, p *plan, before, after map[netip.Addr]held) {
	if ready(after) > 0 || len(p.unnoticed) > 0 || len(o.target(f.Target).unnoticed(p.aim)) > 0 { // at the plan, or since
		return
	}
	if usable(before) && !usable(after) {
		for _, a := range addresses(before) {
			h := before[a]
			if p.config.Probe == "" && h.as(true) == out && p.reported(a, h.source) == silent {
				continue // the last report that counted called it dead, and nothing contradicts that
			}
			if o.answers(a, h.port) && p.mayStay(a, h) && !p.calledDead(a, h) {
				o.broke("I2", "never none", "the Service never has no usable endpoint while one is alive that not every report calls dead",
					"%s wrote %s, and none is usable; %s is alive, its source reports %s, the probe is %s",
					f.Writer, f.Slice, a, p.reported(a, h.source), p.probed(a, h.port))
				return
			}
		}
	}
	if !p.complete() || ready(p.mine) == 0 {
		return
	}
	for _, a := range addresses(p.mine) {
		if h := p.mine[a]; p.mayStay(a, h) && p.stays(a, h) {
			o.broke("I4", "floor", "a Service keeps a ready endpoint while one passes, or is not judged yet",
				"%s wrote %s, and none is ready; %s is %s", f.Writer, f.Slice, a, p.probed(a, p.judgedAt(h)))
			return
		}
	}
}

// mayStay reports whether our own configuration lets an endpoint be listed. One that a term found at a port outside the
// fence, where it still is, may not be: that somebody else moved it there the term cannot know.
func (p *plan) mayStay(a netip.Addr, h held) bool {
	found, is := p.aim.inherited[a]
	denied := is && p.listed[netip.AddrPortFrom(a, found.port)] && !allowed(p.fences, found.source, found.port)
	return h.inside(p.fences, a) && p.config.family(a) && !denied
}

// stays reports whether the floor has something to keep ready in an endpoint.
func (p *plan) stays(a netip.Addr, h held) bool {
	if p.config.Probe == "" {
		return h.as(true) != out && !p.calledDead(a, h)
	}
	judged := p.probed(a, p.judgedAt(h))
	return judged == Passing || judged == Unjudged && h.Ready
}

// moved notes which endpoints a write lists at another port because they fail where another slice still lists them. The
// other half of the move may be written by a later plan, when nobody probes that port any more.
func (t *target) moved(f Wrote, p *plan) {
	if f.After == nil {
		return
	}
	for _, e := range f.After.Endpoints {
		for at := range p.listed {
			if at.Addr() == e.Address && at.Port() != f.After.Port {
				t.halfMoved[at] = p.failed(at.Addr(), at.Port()) || t.halfMoved[at] && p.listed[netip.AddrPortFrom(at.Addr(), f.After.Port)]
			}
		}
	}
}

// mends reports whether a change undoes one that came late. There is no fencing token (high-availability.md): what was sent in
// time can land in the next term, the same writer's too, and where it lands on an untouched slice the new
// leader mends it.
func (t *target) mends(c change) bool {
	before := t.past[c.address]
	return before.late && before.as == c.to && (!c.to.listed || before.port == c.port)
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

// turned remembers what the write made of each address.
func (t *target) turned(f Wrote, p *plan, changes []change, after map[netip.Addr]held, o *Oracle) {
	for _, c := range changes {
		was, is := t.ours[c.address]
		if is == c.to.listed && (!is || was.as(true) == c.to && was.port == c.port) {
			continue // what someone else had altered is as it was
		}
		mends, late := t.mends(c), o.late(p)
		t.past[c.address] = past{c.from, c.was.port, late}
		switch {
		case mends || late:
			delete(t.turns, c.address)
		case c.from != c.to, c.moved:
			t.turns[c.address] = turn{writer: p.writer, version: p.version, expired: p.expiredSources(), from: c.from, port: c.was.port}
		}
	}
	for _, s := range []*Slice{f.Before, f.After} {
		if s == nil {
			continue
		}
		for _, e := range s.Endpoints {
			h, ok := after[e.Address]
			if ok {
				t.ours[e.Address], t.listed[e.Address] = h, true
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
	return s.Source == u.Source && s.Port == u.Port && s.Rest == u.Rest && slices.Equal(s.sorted(), u.sorted())
}

func (s *Slice) sorted() []string {
	var all []string
	for _, e := range s.Endpoints {
		all = append(all, fmt.Sprint(e))
	}
	slices.Sort(all)
	return all
}

// passes reports whether a slice goes from one source to another: what it listed leaves, or comes. Its label
// goes with that (decision-rules.md#targets-and-slices), as often as the sources have it so.
func (s *Slice) passes(to *Slice) bool {
	if s == nil || s.Source == to.Source || len(s.Endpoints)+len(to.Endpoints) == 0 {
		return false
	}
	return !slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return to.lists(e.Address) })
}

func (s *Slice) lists(a netip.Addr) bool {
	return s != nil && slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Address == a })
}

// label is the source of a slice; without a label it is the one named default (decision-rules.md#which-source-owns-an-address).
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
