package oracle

import (
	"net/netip"
	"time"
)

// source is what is true of a secured cluster, and what its inventory has ever told.
type source struct {
	members []Member
	since   map[spot]time.Time // what is true now, and since when without a break
	ever    map[netip.Addr]bool
	told    map[netip.AddrPort]bool // by anybody's subscriber, at any time; port 0: with any
	lied    bool                    // at any time
}

// spot is a machine at an address.
type spot struct {
	name    string
	address netip.Addr
}

func newSource() *source {
	return &source{since: map[spot]time.Time{}, ever: map[netip.Addr]bool{}, told: map[netip.AddrPort]bool{}}
}

func (s *source) become(at time.Time, members []Member) {
	since := make(map[spot]time.Time, len(members))
	for _, m := range members {
		for _, a := range m.Addresses {
			where := spot{m.Name, a}
			if before, ok := s.since[where]; ok {
				since[where] = before
			} else {
				since[where] = at
			}
			s.ever[a] = true
		}
	}
	s.members, s.since = members, since
}

// state is what is true of a machine now.
func (s *source) state(name string) State {
	for i := range s.members {
		if s.members[i].Name == name {
			return s.members[i].State
		}
	}
	return Unknown
}

// told takes in what a writer holds of a source, and judges an honest inventory by it: it tells
// no address that never was, and whatever goes wrong at its side never shrinks the set (feed.md#what-never-happens).
func (o *Oracle) told(f Told) {
	s, w := o.source(f.Source), o.writer(f.Writer)
	before := w.told[f.Source]
	now := &told{Told: f, index: index(f.Members, before)}
	now.first, now.against = make(map[spot]time.Time, len(now.index)), map[netip.Addr]uint64{}
	honest := !s.lied
	for a, m := range now.index {
		where := spot{m.Name, a}
		now.first[where] = o.now
		if before != nil {
			if first, ok := before.first[where]; ok {
				now.first[where] = first
			}
		}
		s.told[netip.AddrPortFrom(a, m.Port)], s.told[netip.AddrPortFrom(a, 0)] = true, true
		w.remember(f.Source, a, m)
		if honest && f.Ever && !o.existed[a] && !s.ever[a] {
			o.broke("I1", "invented", "an honest inventory tells no address that no machine ever had",
				"%s told %s that %s is at %s", f.Source, f.Writer, m.Name, a)
		}
	}
	for a := range w.lastTold[f.Source] {
		if m := now.index[a]; m != nil && m.State == Ready {
			continue
		}
		now.against[a] = f.Observation
		if before != nil && before.Epoch == now.Epoch {
			if first, is := before.against[a]; is {
				now.against[a] = first
			}
		}
	}
	if before != nil && honest && now.sound() {
		o.shrunk(f, s, before, now)
	}
	if !now.sound() && (before == nil || before.sound()) {
		w.unsound[f.Source] = o.now
	}
	w.told[f.Source] = now
	w.observe(o.now, f.Source, now)
	if before == nil || !before.same(now) {
		w.changed()
	}
}

func (w *writer) remember(source string, a netip.Addr, m *Member) {
	if w.lastTold[source] == nil {
		w.lastTold[source] = map[netip.Addr]*Member{}
	}
	w.lastTold[source][a] = m
}

// shrunk judges that an honest inventory goes on telling of a machine that is there, and that it
// has told of, unless its cloud has contradicted itself.
func (o *Oracle) shrunk(f Told, s *source, before, now *told) {
	if o.contradicted {
		return
	}
	told := make(map[string]bool, len(f.Members))
	for i := range f.Members {
		told[f.Members[i].Name] = true
	}
	for where, first := range before.first {
		if told[where.name] || now.index[where.address] != nil {
			continue // it has moved, or one address, one node: a new machine may have come to be there
		}
		if before.Epoch != now.Epoch && (o.clouded || s.state(where.name) != Ready) {
			continue // the first word of an epoch waits for the addresses of READY nodes alone (feed.md#what-never-happens)
		}
		if since, is := s.since[where]; is && !since.After(first) {
			o.broke("I2", "never shrinks", "nothing that goes wrong at an inventory takes a machine away that is there",
				"%s no longer tells %s of %s at %s", f.Source, f.Writer, where.name, where.address)
		}
	}
}

// told is what a writer holds of a source.
type told struct {
	Told

	index   map[netip.Addr]*Member
	first   map[spot]time.Time    // since when it has been told without a break
	against map[netip.Addr]uint64 // since which observation of the epoch it is told to be anything but READY
}

// index finds members by address; it is kept while the members are the same.
func index(members []Member, before *told) map[netip.Addr]*Member {
	if before != nil && len(members) == len(before.Members) && (len(members) == 0 || &members[0] == &before.Members[0]) {
		return before.index
	}
	by := make(map[netip.Addr]*Member, len(members))
	for i := range members {
		for _, a := range members[i].Addresses {
			by[a] = &members[i]
		}
	}
	return by
}

// sound is trust (decision-rules.md#trust) but for the age of the word, whose limit is the target's.
func (t *told) sound() bool { return t.Ever && t.Synced && t.Alive && t.Membership }

// same reports whether nothing differs that a verdict could rest upon, time apart.
func (t *told) same(u *told) bool {
	if t.sound() != u.sound() || t.Ever != u.Ever || t.Epoch != u.Epoch || len(t.index) != len(u.index) {
		return false
	}
	for a, m := range t.index {
		n := u.index[a]
		if n == nil || n != m && (n.State != m.State || n.Port != m.Port || !sameLabels(n.Labels, m.Labels)) {
			return false
		}
	}
	return true
}

func sameLabels(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}
