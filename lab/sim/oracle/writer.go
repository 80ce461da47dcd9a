package oracle

import (
	"net/netip"
	"slices"
	"time"
)

// emptyApart is how far apart observations have to be received to count for emptiness (decision-rules.md#empty).
const emptyApart = 4 * time.Second

// writer is what a writer's process knows.
type writer struct {
	leads    bool
	ledSince time.Time
	ledUntil time.Time // when it last ceased to lead
	told     map[string]*told
	unsound  map[string]time.Time              // by source, since when it has not been sound
	lastTold map[string]map[netip.Addr]*Member // by source, what it told last of each address
	probes   map[string]map[netip.AddrPort]Probed
	fences   map[string]Fenced
	aims     map[string]*aim
}

// aim is what a writer knows of one target.
type aim struct {
	Configured

	known     bool
	selectors []map[string]string // that were in force before
	emptiness map[string]*emptiness
	windows   map[string][]window // by source, those that may be in use
	acts      []string
	withheld  map[string]int       // by source, how many the writer says that its budget holds back
	booked    map[string]time.Time // by source, when that began last, or became less
	written   time.Time            // when it decided what was written in full last
	resumed   time.Time            // when it was paused last
	inherited map[netip.Addr]held  // what the slices listed when its process, term or a pause's end began, whoever wrote that
	noticed   map[string]uint64    // up to which version it has been shown each slice; empty: all of them
	version   uint64               // of all that a verdict on this target could rest upon
}

func newWriter() *writer {
	return &writer{
		told:     map[string]*told{},
		unsound:  map[string]time.Time{},
		lastTold: map[string]map[netip.Addr]*Member{},
		probes:   map[string]map[netip.AddrPort]Probed{},
		fences:   map[string]Fenced{},
		aims:     map[string]*aim{},
	}
}

func newAim() *aim {
	return &aim{
		emptiness: map[string]*emptiness{},
		windows:   map[string][]window{},
		booked:    map[string]time.Time{},
		noticed:   map[string]uint64{},
	}
}

func (w *writer) aim(name string) *aim { return entry(w.aims, name, newAim) }

// act takes in what guards the writer says are acting.
func (a *aim) act(at time.Time, f Acts) {
	for source, now := range f.Withheld {
		if now > 0 && a.withheld[source] == 0 {
			a.booked[source] = at
		}
	}
	for source, before := range a.withheld {
		if f.Withheld[source] < before {
			a.booked[source] = at
		}
	}
	a.acts, a.withheld = f.Guards, f.Withheld
}

// changed says that something changed that verdicts rest upon.
func (w *writer) changed() {
	for _, a := range w.aims {
		a.version++
	}
}

func (w *writer) probed(at time.Time, f Probed) {
	by := w.probes[f.Probe]
	if by == nil {
		by = map[netip.AddrPort]Probed{}
		w.probes[f.Probe] = by
	}
	where := netip.AddrPortFrom(f.Address, f.Port)
	differs := by[where].Verdict != f.Verdict
	by[where] = f
	if !differs {
		return
	}
	w.changed()
	for name, t := range w.told {
		w.observe(at, name, t)
	}
}

func (w *writer) lead(at time.Time, leads bool) {
	switch {
	case leads && !w.leads:
		w.ledSince = at
		for _, a := range w.aims {
			clear(a.windows) // a budget is a leader's; its first window opens now
		}
	case !leads && w.leads:
		w.ledUntil = at
	}
	if leads != w.leads {
		w.changed()
	}
	w.leads = leads
}

func (w *writer) configure(at time.Time, f Configured, t *target) {
	a := w.aim(f.Target)
	if f.Out {
		f.Selector = a.Selector // what it was counts when the Service is ours again, and its slices are still there
	}
	if a.known && !sameLabels(a.Selector, f.Selector) {
		a.selectors = append(a.selectors, a.Selector)
	}
	if f.Out {
		clear(a.windows) // its slices are deleted: nothing that left before can leave again
		clear(a.booked)
	}
	f.Sources = slices.Sorted(slices.Values(f.Sources))
	if a.Paused && !f.Paused {
		a.resumed, a.inherited = at, t.union()
	}
	a.Configured, a.known = f, true
	a.version++
	for _, s := range a.Sources {
		if t := w.told[s]; t != nil {
			a.observe(at, w, s, t)
		}
	}
}

// observe counts, for each target, how often in a row a source was seen empty.
func (w *writer) observe(now time.Time, name string, t *told) {
	for _, a := range w.aims {
		if a.known && !a.Out && slices.Contains(a.Sources, name) {
			a.observe(now, w, name, t)
		}
	}
}

// observe counts how often in a row the view has nothing that serves (decision-rules.md#empty). Another view, or another
// epoch, starts over; an observation that comes sooner than 4 s after the last one that counted is not counted, nor
// is the one that was in force when the epoch was first met.
func (a *aim) observe(now time.Time, w *writer, name string, t *told) {
	if !t.Ever {
		delete(a.emptiness, name)
		return
	}
	e := a.emptiness[name]
	if e == nil || e.epoch != t.Epoch {
		e = &emptiness{epoch: t.Epoch, number: t.Observation}
		a.emptiness[name] = e
	}
	before := e.count
	e.see(t, a.view(t, w.fences, w.probes[a.Probe]).unready, now)
	if e.count != before {
		a.version++
	}
}

// emptiness counts the complete observations in a row that found nothing.
type emptiness struct {
	epoch  string
	number uint64    // of the observation before
	fresh  time.Time // when the number was another one last
	ended  time.Time // when a view that was not empty ended the run
	count  int
	last   time.Time // when the one that counted last was received
}

// see takes in a view. One that the next replaced at the same moment, as they come to a writer that stood still, need
// not have been decided upon, so the run that it ended goes on.
func (e *emptiness) see(t *told, empty bool, now time.Time) {
	if t.Observation != e.number {
		e.number, e.fresh = t.Observation, now
	}
	if !empty {
		if e.ended.IsZero() {
			e.ended = now
		}
		return
	}
	fresh := e.fresh.Equal(now) || e.ended.Equal(now)
	if !e.ended.IsZero() && !e.ended.Equal(now) {
		e.count = 0
	}
	e.ended = time.Time{}
	if fresh && (e.count == 0 || t.Received.Sub(e.last) >= emptyApart) {
		e.count, e.last = e.count+1, t.Received
	}
}

// view is what a target finds in a source's view. Whether members that are NOT_READY count as nothing may depend on
// the prober: then it is empty only to some.
type view struct {
	empty   bool // in every reading
	unready bool // in one of them: none is anything but NOT_READY, and none of these passes
}

// view looks at the members that the target selects. The fence comes first (decision-rules.md#allowlist): a member that may not be
// written is none, and one whose ports cannot be used is one only while it is listed.
func (c Configured) view(t *told, fences map[string]Fenced, probes map[netip.AddrPort]Probed) view {
	v := view{true, true}
	for i := range t.Members {
		m := &t.Members[i]
		if !selects(c.Selector, m.Labels) {
			continue
		}
		for _, at := range m.Addresses {
			if !c.family(at) || !inside(fences, t.Source, at) {
				continue
			}
			_, usable := c.port(t.Source, m, fences)
			v.empty = v.empty && usable && m.State == NotReady && c.Probe == ""
			v.unready = v.unready && (!usable || m.State == NotReady && (c.Probe == "" || !passes(probes, at)))
		}
	}
	return v
}

// port is that of a source's member, and whether it can be used.
func (c Configured) port(source string, m *Member, fences map[string]Fenced) (port uint16, usable bool) {
	if c.follows(source) {
		return m.Port, m.Port != 0 && allowed(fences, source, m.Port)
	}
	return c.ownPort(source), true
}

// ownPort is the one that our configuration gives a source's members; 0: its members tell theirs.
func (c Configured) ownPort(source string) uint16 {
	port, given := c.Ports[source]
	switch {
	case given:
		return port
	case c.Follows:
		return 0
	}
	return c.Port
}

func (c Configured) follows(source string) bool {
	_, given := c.Ports[source]
	return c.Follows && !given
}

// allowed is the fence of a source's ports.
func allowed(fences map[string]Fenced, source string, port uint16) bool {
	return len(fences[source].Ports) == 0 || slices.Contains(fences[source].Ports, port)
}

// passes reports whether an address passes its probe at any port.
func passes(probes map[netip.AddrPort]Probed, a netip.Addr) bool {
	for where, f := range probes {
		if where.Addr() == a && f.Verdict == Passing {
			return true
		}
	}
	return false
}

// probed judges I1 of a probe: no port outside the fence is probed.
func (o *Oracle) probed(f Probed) {
	fences := o.writer(f.Writer).fences
	for name := range fences {
		if inside(fences, name, f.Address) && allowed(fences, name, f.Port) {
			return
		}
	}
	if len(fences) > 0 {
		o.broke("I1", "probe", "no port outside the fence is probed", "%s probes %s at %d", f.Writer, f.Address, f.Port)
	}
}

// family reports whether the Service wants addresses of this family at all.
func (c Configured) family(at netip.Addr) bool {
	if at.Is4() {
		return c.IPv4
	}
	return c.IPv6
}

// inside is the fence of a source, and what is never written whoever sends it (guard 1).
func inside(fences map[string]Fenced, source string, a netip.Addr) bool {
	if a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() {
		return false
	}
	f, ok := fences[source]
	if !ok {
		return true
	}
	return !slices.Contains(f.Forbidden, a) &&
		slices.ContainsFunc(f.Inside, func(c netip.Prefix) bool { return c.Contains(a) })
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}
