package oracle

import (
	"net/netip"
	"slices"
	"time"
)

// Due is when the slices have to be right: zero until all faults are over. A world goes on
// until then, and ends.
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
				bound := o.setup.Delays.bound(halvings(n), a.EmptyThreshold, a.ShrinkWindow)
				longest = max(longest, bound+time.Duration(len(a.Failover))*time.Minute)
			}
		}
	}
	return o.over.Add(longest)
}

// end judges I5: when the faults have stopped, slices equal the table's result for the truth
// within the bound.
func (o *Oracle) end() {
	if o.over.IsZero() {
		return
	}
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

// equals judges one target: each endpoint is what the table makes of the truth. What floor keeps, and what fails
// without being corroborated, is correct while it is reported (decision-rules.md#invariants, I5), and only while
// nothing else would be ready.
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
	if len(all) > 0 && frozen(all, w.fences) {
		if !a.tells("allowlist") {
			o.broke("I5", "told", "what a guard keeps is told", "the allowlist keeps %s as it is, and it says %v", name, a.acts)
		}
		return
	}
	right, ports := o.table(w, a, all)
	right = o.standBy(a, all, right)
	some := false
	for _, f := range right {
		some = some || f.Ready
	}
	kept := !some && (a.tells("floor") || a.tells("panic"))
	for _, address := range addresses(right) {
		h, listed := all[address]
		is, want := h.as(listed), right[address]
		switch {
		case is == want && (!want.listed || h.port == ports[address]) || a.NoOut && is.rank()+want.rank() == 0:
		case is.listed && kept:
		case is.listed && !some && want.rank() < is.rank():
			o.broke("I5", "told", "what a guard keeps is told", "%s of %s is %s and should be %s, and it says %v", address, name, is, want,
				a.acts)
		default:
			o.broke("I5", "wrong", "when faults stop, slices equal the table's result for the truth",
				"%s:%d of %s is %s and should be %s at %d; alive: %t", address, h.port, name, is, want, ports[address],
				o.answers(address, ports[address]))
		}
	}
	if ready(all) > 0 || a.Probe == "" {
		return
	}
	for _, address := range addresses(all) {
		if h := all[address]; o.answers(address, h.port) && a.family(address) && h.inside(w.fences, address) {
			o.broke("I5", "floor", "when faults stop, something that answers is ready", "%s of %s is %s", address, name,
				all[address].as(true))
		}
	}
}

func (o *Oracle) answers(a netip.Addr, port uint16) bool { return o.alive[netip.AddrPortFrom(a, port)] }

func (a *aim) tells(guard string) bool { return a.acts == nil || slices.Contains(a.acts, guard) }

// table is the result for the truth, which is what every source would tell without a fault and every prober would
// find, of all that is listed or should be, and at which port.
func (o *Oracle) table(w *writer, a *aim, all map[netip.Addr]held) (right map[netip.Addr]fate, ports map[netip.Addr]uint16) {
	right, ports = map[netip.Addr]fate{}, map[netip.Addr]uint16{}
	for address := range all {
		right[address] = gone
	}
	for _, name := range slices.Backward(a.Sources) { // one that is new belongs to the first by name
		for _, m := range o.source(name).members {
			if !selects(a.Selector, m.Labels) {
				continue
			}
			for _, address := range m.Addresses {
				h, listed := all[address]
				label := name
				if listed {
					label = h.source
				}
				if !a.family(address) || !inside(w.fences, label, address) || !inside(w.fences, name, address) {
					continue
				}
				port, usable := o.place(w, a, name, &m, address, all)
				if f := a.result(m.State, o.answers(address, port)); usable && (listed || f.rank() > 0) {
					right[address], ports[address] = f, port
				}
			}
		}
	}
	return right, ports
}

// place is the port of an endpoint: the listed one until the one passes that its source tells.
func (o *Oracle) place(w *writer, a *aim, source string, m *Member, at netip.Addr, all map[netip.Addr]held) (port uint16, usable bool) {
	port, usable = a.port(source, m, w.fences)
	if h, listed := all[at]; listed && h.inside(w.fences, at) && (!usable || a.Probe != "" && !o.answers(at, port)) {
		return h.port, true
	}
	return port, usable
}

// standBy is the result of the table without the tiers that are not needed.
func (o *Oracle) standBy(a *aim, all map[netip.Addr]held, right map[netip.Addr]fate) map[netip.Addr]fate {
	for tier := 1; tier <= len(a.Failover); tier++ {
		ready := 0
		for address, f := range right {
			if f.Ready && o.trueTier(a, all, address) < tier {
				ready++
			}
		}
		for address := range right {
			if ready >= a.FailoverBelow && o.trueTier(a, all, address) == tier {
				right[address] = gone
			}
		}
	}
	return right
}

// trueTier is the earliest tier of the sources that have an address, or whose label it bears.
func (o *Oracle) trueTier(a *aim, all map[netip.Addr]held, address netip.Addr) int {
	tier := len(a.Failover)
	if h, listed := all[address]; listed {
		tier = a.tier(h.source)
	}
	for _, name := range a.Sources {
		for _, m := range o.source(name).members {
			if slices.Contains(m.Addresses, address) && selects(a.Selector, m.Labels) {
				tier = min(tier, a.tier(name))
			}
		}
	}
	return tier
}

// result is the table (decision-rules.md#the-decision-table) for what is certain.
func (a *aim) result(s State, alive bool) fate {
	switch {
	case a.Probe != "" && !alive, a.Probe == "" && s == NotReady:
		return out
	case s == Draining:
		return drain
	}
	return serve
}
