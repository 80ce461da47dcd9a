package oracle

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// keptPlans is how many plans are remembered: a request is answered or given up in seconds (high-availability.md).
const keptPlans = 64

// plan is what a writer knew when it decided what to write.
type plan struct {
	Planned

	at        time.Time
	writer    *writer
	aim       *aim
	config    Configured
	leads     bool
	led       time.Time // since when
	version   uint64
	told      map[string]*told
	empty     map[string]int // by source, how many observations in a row found nothing
	probes    map[netip.AddrPort]Probed
	fences    map[string]Fenced
	selectors []map[string]string     // that were in force before
	held      map[netip.Addr]held     // what the slices said, with the ports that our own writes have made
	listed    map[netip.AddrPort]bool // by any slice
	before    map[netip.Addr]held     // what they said before its last write
	mine      map[netip.Addr]held     // of that, what our own writes have made
	written   map[netip.Addr]held     // what our own writes have made, though somebody may have taken it
	unnoticed map[string]bool         // slices of which the writer did not know what someone else did to them
	landed    int
}

// plan notes what a writer knows at the moment at which it plans writes.
func (o *Oracle) plan(f Planned) {
	p := o.snapshot(f)
	o.plans[f.Plan] = p
	o.recent = append(o.recent, f.Plan)
	if len(o.recent) > keptPlans {
		delete(o.plans, o.recent[0])
		o.recent = o.recent[1:]
	}
	if !p.leads && f.Writes > 0 { // it may read
		o.broke("I4", "leader", "only who leads writes", "%s planned %d writes to %s", f.Writer, f.Writes, f.Target)
	}
}

func (o *Oracle) snapshot(f Planned) *plan {
	w, t := o.writer(f.Writer), o.target(f.Target)
	a := w.aim(f.Target)
	p := &plan{
		Planned:   f,
		at:        o.now,
		writer:    w,
		aim:       a,
		config:    a.Configured,
		leads:     w.leads,
		led:       w.ledSince,
		version:   a.version,
		told:      maps.Clone(w.told),
		listed:    map[netip.AddrPort]bool{},
		empty:     make(map[string]int, len(a.emptiness)),
		probes:    maps.Clone(w.probes[a.Probe]),
		fences:    maps.Clone(w.fences),
		selectors: slices.Clip(a.selectors),
		held:      t.union(),
		written:   maps.Clone(t.ours),
		unnoticed: t.unnoticed(a),
	}
	for _, s := range t.slices {
		for _, e := range s.Endpoints {
			p.listed[netip.AddrPortFrom(e.Address, s.Port)] = true
		}
	}
	for address, h := range p.held {
		if ours, is := t.ours[address]; is {
			h.port = ours.port
			p.held[address] = h
		}
	}
	p.mine = t.mine(p.held)
	for name, e := range a.emptiness {
		p.empty[name] = e.count
	}
	return p
}

// complete reports whether every request of a plan took effect, as far as is known.
func (p *plan) complete() bool { return p.landed >= max(1, p.Writes) }

// ready is how many endpoints of a source were ready, before its writes or between two of them: a window may open there.
func (p *plan) ready(source string) int {
	return max(readyOf(source, p.held), readyOf(source, p.before))
}

func readyOf(source string, all map[netip.Addr]held) (n int) {
	for _, h := range all {
		if h.source == source && h.Ready {
			n++
		}
	}
	return n
}

// report is what a control plane says of a held address to those who may believe it.
type report uint8

const (
	silent report = iota // it cannot be believed, or says what is not known
	absent
	reportsReady
	reportsDraining
	reportsNotReady
)

// reported is what the source says whose label an address bears, and the first other one that has it once
// that one leaves it out.
func (p *plan) reported(a netip.Addr, label string) report {
	if slices.Contains(p.config.Sources, label) {
		if !p.believed(label) {
			return silent
		}
		if m := p.member(label, a); m != nil {
			return m.State.report()
		}
	}
	for _, other := range p.config.Sources {
		if other != label && p.inside(other, a) && p.believed(other) {
			if m := p.member(other, a); m != nil {
				return m.State.report()
			}
		}
	}
	return absent
}

func (s State) report() report {
	return [...]report{Unknown: silent, Ready: reportsReady, Draining: reportsDraining, NotReady: reportsNotReady}[s]
}

// member is the source's member at an address, if the target selects it.
func (p *plan) member(name string, a netip.Addr) *Member {
	if t := p.told[name]; t != nil {
		if m := t.index[a]; m != nil && selects(p.config.Selector, m.Labels) {
			return m
		}
	}
	return nil
}

// trusted is decision-rules.md#trust; the snapshot gate is part of it.
func (p *plan) trusted(name string) bool {
	t := p.told[name]
	return t != nil && t.sound() && p.at.Sub(t.Word) <= p.config.MaxStaleness
}

// believed reports whether what a source says may take anything away: it is trusted, and has told of something
// or has been seen empty often enough (decision-rules.md#empty).
func (p *plan) believed(name string) bool {
	return p.trusted(name) && (p.confirmedEmpty(name) || !p.config.view(p.told[name], p.fences, p.probes).empty)
}

func (p *plan) confirmedEmpty(name string) bool { return p.empty[name] >= p.config.EmptyThreshold }

// emptied reports whether the budget does not apply to a source: it has nothing that serves, and that is confirmed.
func (p *plan) emptied(name string) bool {
	return p.trusted(name) && p.confirmedEmpty(name) && p.config.view(p.told[name], p.fences, p.probes).unready
}

// probed is the probe's status of an address at a port.
func (p *plan) probed(a netip.Addr, port uint16) Verdict {
	if p.config.Probe == "" {
		return Unjudged
	}
	return p.probes[netip.AddrPortFrom(a, port)].Verdict
}

// judgedAt is the port at which a listed endpoint is probed: where it is listed, or where our own configuration says.
func (p *plan) judgedAt(h held) uint16 {
	if p.config.follows(h.source) {
		return h.port
	}
	return p.config.ownPort(h.source)
}

// failed reports whether an address fails its probe at a port, and that counts: another endpoint has passed since the
// failures began. Otherwise the prober is as likely at fault.
func (p *plan) failed(a netip.Addr, port uint16) bool {
	if p.probed(a, port) != Failing {
		return false
	}
	this := netip.AddrPortFrom(a, port)
	since := p.probes[this].FailingSince
	for where, f := range p.probes {
		other := where.Addr() // or this one at another port
		if where == this || !f.LastPassed.After(since) && (!f.LastPassed.Equal(since) || f.Verdict != Passing) {
			continue
		}
		if _, is := p.held[other]; is {
			return true
		}
		if _, is := p.written[other]; is {
			return true
		}
		for _, t := range p.told {
			if t.index[other] != nil {
				return true
			}
		}
	}
	return false
}

// calledDead reports whether every report that can speak calls an endpoint dead (decision-rules.md#invariants, I2): the control plane's, if it
// is believed, by NOT_READY or absence; the probe's, by a failure that counts. Where none can speak, nobody has called
// it dead.
func (p *plan) calledDead(a netip.Addr, h held) bool {
	says, failed := p.reported(a, h.source), p.failed(a, h.port)
	dead := says == absent || says == reportsNotReady
	return (dead || failed) && (dead || says == silent) && (failed || p.probed(a, h.port) != Passing)
}

// ours reports whether our own configuration takes an endpoint away: its family, the fence, the sources, or a
// selector that would have left it out of what its source told of it last.
func (p *plan) ours(a netip.Addr, h held) bool {
	label := h.source
	if !p.config.family(a) || !h.inside(p.fences, a) || !slices.Contains(p.config.Sources, label) {
		return true
	}
	m := p.writer.lastTold[label][a]
	return m != nil && !selects(p.config.Selector, m.Labels) &&
		slices.ContainsFunc(p.selectors, func(s map[string]string) bool { return selects(s, m.Labels) })
}

func (p *plan) inside(name string, a netip.Addr) bool { return inside(p.fences, name, a) }

// inside reports whether an endpoint is within the fence of its source.
func (h held) inside(fences map[string]Fenced, a netip.Addr) bool {
	return inside(fences, h.source, a) && allowed(fences, h.source, h.port)
}

func (r report) String() string {
	return [...]string{"nothing that counts", "absent", "READY", "DRAINING", "NOT_READY"}[r]
}

func (v Verdict) String() string { return [...]string{"not judged yet", "passing", "failing"}[v] }

// failedWhereListed reports whether an address failed at one of several ports: a move of which half was written lists
// it at two, and the writer goes by that of the first slice.
func (p *plan) failedWhereListed(a netip.Addr) bool {
	ports, failed := 0, false
	for at := range p.listed {
		if at.Addr() == a {
			ports++
			failed = failed || p.failed(a, at.Port())
		}
	}
	return ports > 1 && failed
}
