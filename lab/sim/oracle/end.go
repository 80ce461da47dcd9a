package oracle

import (
	"net/netip"
	"slices"
	"time"
)

// Due is when the slices have to be right: zero until all faults are over. A world goes on
// until then, or until Settled, and ends.
func (o *Oracle) Due() time.Time {
	if o.over.IsZero() {
		return time.Time{}
	}
	longest := time.Duration(0)
	for _, name := range sorted(o.targets) {
		n := len(o.targets[name].slices)
		for _, s := range o.targets[name].slices {
			n += len(s.Endpoints)
		}
		for _, w := range o.writers {
			if a := w.aims[name]; a != nil && a.known {
				longest = max(longest, o.setup.Delays.bound(halvings(n), a.EmptyThreshold, a.ShrinkWindow))
			}
		}
	}
	return o.over.Add(longest)
}

// Settled reports whether the slices are what the truth makes of them now.
func (o *Oracle) Settled() bool {
	found := o.found
	o.found = nil
	o.right()
	settled := len(o.found) == 0
	o.found = found
	return settled
}

// end judges I5: when the faults have stopped, slices equal the table's result for the truth
// within the bound.
func (o *Oracle) end() {
	if !o.over.IsZero() {
		o.right()
	}
}

func (o *Oracle) right() {
	var leaders []string
	for _, name := range sorted(o.writers) {
		if o.writers[name].leads {
			leaders = append(leaders, name)
		}
	}
	if len(leaders) != 1 {
		o.broke("I5", "leader", "when faults stop, one writer leads", "%d lead: %v", len(leaders), leaders)
		return
	}
	for _, name := range sorted(o.targets) {
		o.equals(name, o.writer(leaders[0]))
	}
	for _, name := range sorted(o.writer(leaders[0]).aims) {
		if o.targets[name] == nil {
			o.target(name)
			o.equals(name, o.writer(leaders[0]))
		}
	}
}

// equals judges one target: each endpoint is what the table makes of the truth, which is what
// every source would tell without a fault and every prober would find. What the floor and a
// panic keep is right as long as it is told (§8, I5).
func (o *Oracle) equals(name string, w *writer) {
	a, t := w.aim(name), o.target(name)
	if !a.known || a.Paused {
		return
	}
	all := t.union()
	if a.Out {
		if len(t.slices) > 0 {
			o.broke("I5", "opted out", "the slices of a target that opted out are deleted", "%s still has %v", name, sorted(t.slices))
		}
		return
	}
	p := o.truth(name, w, a, all)
	if p.frozen() {
		o.tells(a, name, "allowlist")
		return
	}
	r := p.decide(all)
	for _, address := range addresses(all) {
		is, want := all[address].as(), r.fates[address]
		if _, kept := r.floor[address]; kept {
			want = serve
		}
		if !p.equal(is, want) {
			o.broke("I5", "wrong", "when faults stop, slices equal the table's result for the truth",
				"%s of %s is %s and should be %s: %s", address, name, is, want, o.plight(address, p))
		}
	}
	for _, address := range addresses(r.fates) {
		if _, listed := all[address]; !listed && r.fates[address].listed {
			o.broke("I5", "missing", "when faults stop, slices equal the table's result for the truth",
				"%s of %s is not listed and should be %s: %s", address, name, r.fates[address], o.plight(address, p))
		}
	}
	if r.void.acts() {
		o.tells(a, name, "panic")
	}
	for address := range r.floor {
		if r.fates[address] != serve {
			o.tells(a, name, "floor")
			break
		}
	}
}

func (o *Oracle) plight(a netip.Addr, p *plan) string {
	alive := "dead"
	if o.alive[a] {
		alive = "alive"
	}
	var sources []string
	for _, s := range p.config.Sources {
		if m := p.told[s].index[a]; m != nil {
			sources = append(sources, s+" has it as "+m.Name+", "+wordOf(m.State).String())
		}
	}
	if sources == nil {
		sources = []string{"no source has it"}
	}
	return alive + ", " + sources[0]
}

// tells judges that an exception is told.
func (o *Oracle) tells(a *aim, name, guard string) {
	if a.acts != nil && !slices.Contains(a.acts, guard) {
		o.broke("I5", "told", "what a guard keeps from the table's result is told", "%s keeps %s as it is, and says %v", guard, name, a.acts)
	}
}

// truth is a plan by a writer that knows everything.
func (o *Oracle) truth(name string, w *writer, a *aim, all map[netip.Addr]held) *plan {
	p := &plan{
		Planned: Planned{Target: name}, at: o.now, writer: w, aim: a, config: a.Configured, leads: true,
		told: map[string]*told{}, empty: map[string]emptiness{}, probes: map[netip.Addr]Probed{},
		fences: w.fences, held: all, mine: all,
	}
	enough := run{count: a.EmptyThreshold}
	for _, s := range a.Sources {
		t := &told{Told: Told{
			Source: s, Ever: true, Synced: true, Alive: true, Membership: true, Word: o.now, Members: o.source(s).members,
		}}
		t.index = index(t.Members, nil)
		t.word = t.index
		p.told[s], p.empty[s] = t, emptiness{unready: enough, dead: enough}
	}
	judge := func(address netip.Addr) {
		v := Failing
		if o.alive[address] {
			v = Passing
		}
		p.probes[address] = Probed{Address: address, Verdict: v}
	}
	for address := range all {
		judge(address)
	}
	for _, s := range a.Sources {
		for address := range p.told[s].index {
			judge(address)
		}
	}
	return p
}
