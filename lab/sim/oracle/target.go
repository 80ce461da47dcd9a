package oracle

import (
	"fmt"
	"net/netip"
)

// target is what the API server has of a Service.
type target struct {
	slices map[string]*Slice
	ours   map[netip.Addr]held // what the writers' own writes have made, foreign edits apart
	listed map[netip.Addr]bool // what they have ever listed
	// halfMoved is where endpoints failed that another slice lists at another port since.
	halfMoved map[netip.AddrPort]bool
	turns     map[netip.Addr]turn // the last change of each endpoint
	last      *writer             // who wrote last; nil: someone else
	past      map[netip.Addr]past // what each endpoint was before the last change
	rests     map[string][]string // per slice, what its rest was, by our writes alone
	edits     []edit              // by someone else, or late, of slices that no writer has written since
}

// edit is what someone else did to a slice.
type edit struct {
	slice   string
	version uint64
}

// fate is what becomes of an address: not listed, or listed with certain conditions.
type fate struct {
	Conditions

	listed bool
}

var (
	serve = fate{Conditions{Ready: true, Serving: true}, true}
	drain = fate{Conditions{Serving: true, Terminating: true}, true}
	out   = fate{Conditions{}, true}
	gone  = fate{}
)

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

// held is an endpoint as the slices list it.
type held struct {
	Conditions

	source string
	port   uint16
	slices int // how many list it
}

// turn is a change of an endpoint, made on a certain state of knowledge.
type turn struct {
	writer  *writer
	version uint64
	expired string // the sources that had expired: that comes with time alone
	from    fate
	port    uint16
}

// past is what an endpoint was until a writer changed it.
type past struct {
	as   fate
	port uint16
	late bool // that writer's term was over, or another's had begun
}

// as is the fate of an endpoint that stays as it is, if it is listed.
func (h held) as(listed bool) fate { return fate{h.Conditions, listed} }

func newTarget() *target {
	return &target{
		slices: map[string]*Slice{}, ours: map[netip.Addr]held{}, listed: map[netip.Addr]bool{}, halfMoved: map[netip.AddrPort]bool{},
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

// edit takes in what someone else did. What the writers have made stays what it was (decision-rules.md#what-is-current,
// held): they may restore it, and need not.
func (t *target) edit(f Edited) {
	t.edits = append(t.edits, edit{f.Slice, f.Version})
	t.put(f.Slice, f.After)
	delete(t.rests, f.Slice)
	clear(t.turns)
	t.last = nil
}

// unnoticed are the slices of which a writer has not been shown yet what someone else did to them.
func (t *target) unnoticed(a *aim) map[string]bool {
	names := map[string]bool{}
	for _, e := range t.edits {
		if e.version > max(a.noticed[e.slice], a.noticed[""]) {
			names[e.slice] = true
		}
	}
	return names
}

// union is what a consumer sees of all slices. An address in several of them counts as the best
// that any of them says.
func (t *target) union() map[netip.Addr]held {
	all := make(map[netip.Addr]held, 16)
	for _, name := range sorted(t.slices) {
		s := t.slices[name]
		source := s.Source
		if source == "" {
			source = "default" // decision-rules.md#which-source-owns-an-address: a held slice without a source's label belongs to it
		}
		for _, e := range s.Endpoints {
			h, ok := all[e.Address]
			if !ok || e.rank() > h.rank() {
				h = held{Conditions: e.Conditions, source: source, port: s.Port, slices: h.slices}
			}
			h.slices++
			all[e.Address] = h
		}
	}
	return all
}

// rank orders what endpoints are to a consumer.
func (c Conditions) rank() int {
	switch {
	case c.Ready:
		return 2
	case c.Serving && c.Terminating:
		return 1
	}
	return 0
}

// usable reports whether a consumer finds anything: ready, or serving and terminating when none
// is ready (decision-rules.md#invariants, I2).
func usable(all map[netip.Addr]held) bool {
	for _, h := range all {
		if h.rank() > 0 {
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
