package oracle

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// emptyApart is how far apart observations have to be received to count for emptiness (§5).
const emptyApart = 4 * time.Second

// writer is what a writer's process knows.
type writer struct {
	leads    bool
	ledSince time.Time
	ledUntil time.Time // when it last ceased to lead
	told     map[string]*told
	probes   map[string]map[netip.Addr]Probed
	fences   map[string]Fenced
	aims     map[string]*aim
}

// aim is what a writer knows of one target.
type aim struct {
	Configured

	known     bool
	before    []map[string]string                         // the selectors that were in force before
	dropped   map[string]map[netip.Addr]map[string]string // by source, the labels of what a selector of ours left out while it was told
	emptiness map[string]*emptiness
	windows   map[string]*window
	acts      []string
	found     map[netip.Addr]held               // what the slices listed when it took the Lease, and it has not changed since
	resumed   time.Time                         // when it was paused last
	withheld  map[string]int                    // by source, how many the writer says that its budget holds back
	booked    []booking                         // when that began, or became less, and is not written yet
	spoken    map[string]map[netip.Addr]*Member // by source, the last trusted view in which there was something
	noticed   map[string]uint64                 // up to which version it has been shown each slice; empty: all of them
	version   uint64                            // of all that a verdict on this target could rest upon
}

// emptiness counts the complete observations in a row that found nothing.
type emptiness struct {
	epoch         string
	unready, dead run // in each way in which a view is blank
	seen          [2]sight
}

// sight is the number of the observation that counted last, and when one came that was newer. A view that is not
// blank starts over, also with a number that goes back, as a liar's do.
type sight struct {
	number uint64
	fresh  time.Time
}

// see reports whether an observation is newer to whoever decides now.
func (s *sight) see(blank bool, number uint64, now time.Time) bool {
	if number > s.number {
		s.fresh = now
	}
	if number > s.number || !blank {
		s.number = number
	}
	return s.fresh.Equal(now)
}

type run struct {
	count int
	last  time.Time

	ended  time.Time // when a view that was not empty ended the last one
	before *run      // that one
}

func newWriter() *writer {
	return &writer{
		told: map[string]*told{}, probes: map[string]map[netip.Addr]Probed{},
		fences: map[string]Fenced{}, aims: map[string]*aim{},
	}
}

func (w *writer) aim(name string) *aim {
	a := w.aims[name]
	if a == nil {
		a = &aim{
			emptiness: map[string]*emptiness{}, windows: map[string]*window{},
			dropped: map[string]map[netip.Addr]map[string]string{}, noticed: map[string]uint64{},
			spoken: map[string]map[netip.Addr]*Member{},
		}
		w.aims[name] = a
	}
	return a
}

// booking is that a writer has let so many of a source go, as far as it says.
type booking struct {
	at     time.Time
	source string
	n      int
}

// act takes in what guards the writer says are acting.
func (a *aim) act(at time.Time, f Acts) {
	for _, source := range slices.Sorted(maps.Keys(f.Withheld)) {
		if before, now := a.withheld[source], f.Withheld[source]; now > 0 && (before == 0 || now < before) {
			a.booked = append(a.booked, booking{at, source, max(0, before-now)})
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
		by = map[netip.Addr]Probed{}
		w.probes[f.Probe] = by
	}
	differs := by[f.Address].Verdict != f.Verdict
	by[f.Address] = f
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

func (w *writer) configure(at time.Time, f Configured) {
	a := w.aim(f.Target)
	if f.Out {
		f.Selector = a.Selector // what it was counts when the Service is ours again, and its slices are still there
	}
	if a.known && !sameLabels(a.Selector, f.Selector) {
		a.before = append(a.before, a.Selector)
	}
	if f.Out {
		clear(a.windows) // its slices are deleted: nothing that left before can leave again
		a.booked = nil
	}
	f.Sources = slices.Sorted(slices.Values(f.Sources))
	if a.Paused && !f.Paused {
		a.resumed = at
	}
	a.Configured, a.known = f, true
	a.version++
	for _, s := range a.Sources {
		if t := w.told[s]; t != nil {
			for _, earlier := range slices.Backward(t.since(at)) {
				a.drop(s, earlier) // to a writer that stood still it was there when its selector changed
			}
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

// observe counts what the target selects of the view (§5, guard 4): a view that is not empty,
// or another epoch, starts over; an observation that comes sooner than 4 s after the last one
// that counted is not counted, nor one that had come before the view was empty, or was in force when the epoch was
// first met (decision 0001). Whether nodes that
// are NOT_READY count as nothing depends on the prober, and on what a panic keeps; so each is
// counted, and which of them is asked for is decided later.
func (a *aim) observe(now time.Time, w *writer, name string, t *told) {
	a.drop(name, t)
	if !t.Ever {
		delete(a.emptiness, name)
		return
	}
	if view := a.blank(t, w.fences, w.probes[a.Probe]); t.sound() && !view.unready {
		a.spoken[name] = t.index
	}
	e := a.emptiness[name]
	if e == nil || e.epoch != t.Epoch {
		first := sight{number: t.Observation}
		e = &emptiness{epoch: t.Epoch, seen: [2]sight{first, first}}
		a.emptiness[name] = e
	}
	view := a.blank(t, w.fences, w.probes[a.Probe])
	before := *e
	e.unready.see(view.unready, e.seen[0].see(view.unready, t.Observation, now), t.Received, now)
	e.dead.see(view.dead, e.seen[1].see(view.dead, t.Observation, now), t.Received, now)
	if e.unready != before.unready || e.dead != before.dead {
		a.version++
	}
}

// drop notes what our own configuration leaves out of what is told (§5, guard 7): that a machine is deleted
// afterwards, while the Service is paused perhaps, does not make it the feed that took it away.
func (a *aim) drop(name string, t *told) {
	for at, m := range t.index {
		switch {
		case selects(a.Selector, m.Labels):
			delete(a.dropped[name], at)
		case slices.ContainsFunc(a.before, func(s map[string]string) bool { return selects(s, m.Labels) }):
			if a.dropped[name] == nil {
				a.dropped[name] = map[netip.Addr]map[string]string{}
			}
			a.dropped[name][at] = m.Labels
		}
	}
}

// see counts an observation. A view that the next one replaced at the same moment, as they come to a writer that
// stood still, need not have been decided upon: a decision is made on what is known when it is made (§5), and
// whoever is slow gets the newest state (§3). So what it ended goes on. The number that it came with is as new
// to whoever decides on the next: see sight.
func (r *run) see(empty, fresh bool, received, now time.Time) {
	if !empty {
		if r.count > 0 {
			*r = run{ended: now, before: &run{count: r.count, last: r.last}}
		}
		return
	}
	if r.before != nil && r.ended.Equal(now) {
		*r, fresh = *r.before, true
	}
	if fresh && (r.count == 0 || received.Sub(r.last) >= emptyApart) {
		*r = run{count: r.count + 1, last: received}
	}
}

// blank is in which ways a target finds nothing in a view: no members, or nothing but NOT_READY ones (guard 4)
// whose probes do not pass either (decision 0001).
type blank struct {
	unready bool // none that passes
	dead    bool // nor one that is not judged yet: it may serve in a moment
}

// blank looks at the members of the view that the target selects. The fence comes first (§5,
// guard 1): a member that may not be written is none.
func (a *aim) blank(t *told, fences map[string]Fenced, probes map[netip.Addr]Probed) blank {
	b := blank{true, true}
	for i := range t.Members {
		m := &t.Members[i]
		if !selects(a.Selector, m.Labels) {
			continue
		}
		for _, at := range m.Addresses {
			if !a.family(at) || !inside(fences, t.Source, at) {
				continue
			}
			b.unready = b.unready && m.State == NotReady && (a.Probe == "" || probes[at].Verdict != Passing)
			b.dead = b.dead && m.State == NotReady && (a.Probe == "" || probes[at].Verdict == Failing)
		}
	}
	return b
}

// family reports whether the Service wants addresses of this family at all.
func (a *aim) family(at netip.Addr) bool {
	if at.Is4() {
		return a.IPv4
	}
	return a.IPv6
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
