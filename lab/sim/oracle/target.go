package oracle

import (
	"maps"
	"net/netip"
)

// target is what the API server has of a Service.
type target struct {
	slices map[string]*Slice
	ours   map[netip.Addr]held // what the writers' own writes have made, foreign edits apart
	had    map[netip.Addr]held // what an endpoint was before it was put out
	turns  map[netip.Addr]turn // the last change of each endpoint
	last   *writer             // who wrote last; nil: someone else
	past   map[netip.Addr]past // what each endpoint was before the last change
	rests  map[string][]string // per slice, what its rest was, by our writes alone
	edits  []edit              // by someone else, of slices that no writer has written since
}

// edit is what someone else did to a slice.
type edit struct {
	slice   string
	version uint64
	before  *Slice
}

// held is an endpoint as the slices list it.
type held struct {
	Conditions

	source string
	slices int // how many list it
}

// turn is a change of an endpoint, made on a certain state of knowledge.
type turn struct {
	writer  *writer
	version uint64
	from    fate
}

// past is what an endpoint was until a writer changed it.
type past struct {
	as   fate
	late bool // that writer's term was over, or another's had begun
}

func newTarget() *target {
	return &target{
		slices: map[string]*Slice{}, ours: map[netip.Addr]held{}, had: map[netip.Addr]held{},
		turns: map[netip.Addr]turn{}, past: map[netip.Addr]past{}, rests: map[string][]string{},
	}
}

func (t *target) put(name string, s *Slice) {
	if s == nil {
		delete(t.slices, name)
	} else {
		t.slices[name] = s
	}
}

// edit takes in what someone else did. What the writers have made stays what it was (§5,
// held): they may restore it, and need not.
func (t *target) edit(f Edited) {
	t.edits = append(t.edits, edit{f.Slice, f.Version, t.slices[f.Slice]})
	t.put(f.Slice, f.After)
	delete(t.rests, f.Slice)
	clear(t.turns)
	t.last = nil
}

// unnoticed are the slices of which a writer has not been shown yet what someone else did to them, as they were
// before that.
func (t *target) unnoticed(a *aim) map[string]*Slice {
	as := map[string]*Slice{}
	for _, e := range t.edits {
		if _, is := as[e.slice]; !is && e.version > max(a.noticed[e.slice], a.noticed[""]) {
			as[e.slice] = e.before
		}
	}
	return as
}

// held is what a writer holds that has planned this: of what someone else did, only what it had noticed.
func (t *target) held(p *plan) map[netip.Addr]held {
	believed := &target{slices: maps.Clone(t.slices)}
	for name, s := range p.unnoticed {
		believed.put(name, s)
	}
	return t.mine(believed.union())
}

// union is what a consumer sees of all slices. An address in several of them counts as the best
// that any of them says.
func (t *target) union() map[netip.Addr]held {
	all := make(map[netip.Addr]held, 16)
	for _, name := range sorted(t.slices) {
		s := t.slices[name]
		source := s.Source
		if source == "" {
			source = "default" // §6: a held slice without a source's label belongs to it
		}
		for _, e := range s.Endpoints {
			h, ok := all[e.Address]
			if !ok || rank(e.Conditions) > rank(h.Conditions) {
				h = held{Conditions: e.Conditions, source: source, slices: h.slices}
			}
			h.slices++
			all[e.Address] = h
		}
	}
	return all
}

func rank(c Conditions) int {
	switch {
	case c.Ready:
		return 2
	case c.Serving && c.Terminating:
		return 1
	}
	return 0
}

// usable reports whether a consumer finds anything: ready, or serving and terminating when none
// is ready (§8, I2).
func usable(all map[netip.Addr]held) bool {
	for _, h := range all {
		if rank(h.Conditions) > 0 {
			return true
		}
	}
	return false
}

// ready counts the endpoints that are ready.
func ready(all map[netip.Addr]held) int {
	n := 0
	for _, h := range all {
		if h.Ready {
			n++
		}
	}
	return n
}

// mine leaves out what our own writes have not made.
func (t *target) mine(all map[netip.Addr]held) map[netip.Addr]held {
	foreign := false
	for a := range all {
		if _, is := t.ours[a]; !is {
			foreign = true
		}
	}
	if !foreign {
		return all
	}
	mine := make(map[netip.Addr]held, len(all))
	for a, h := range all {
		if _, is := t.ours[a]; is {
			mine[a] = h
		}
	}
	return mine
}
