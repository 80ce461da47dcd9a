package verdict

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// shrinkWindow is the budget of departures of one source.
type shrinkWindow struct {
	opened time.Time // when its first departure was decided last; zero: not opened since we lead
	budget int
	used   int
	begun  bool // a departure was written: what it let go is not ready in the slices any more
	// epoch and observation were in force when it was last used.
	epoch       string
	observation uint64
}

// departures returns the endpoints of a source that leave ready on its report alone, by whatever route, the oldest report
// first, and how many are ready. Endpoints whose probe fails too, that the allowlist denies, that our own settings drop
// or whose source is confirmed to be empty do not count: neither as departures nor as ready.
func (e *evaluation) departures(source int) (leaving []*row, ready int) {
	leaves := func(r *row) bool { return !r.isReady() || r.moves }
	all := filter(e.rows, func(r *row) bool {
		// One that does not count may have left already, and only the answer to that write was lost.
		return r.currentSource == source && r.conditions().Ready && (!leaves(r) || e.countsAsDeparture(r))
	})
	leaving = filter(all, leaves)
	slices.SortStableFunc(leaving, func(a, b *row) int { return a.memory.since.Compare(b.memory.since) })
	return leaving, len(all)
}

// countsAsDeparture reports whether an endpoint that leaves ready does so on its source's report alone.
func (e *evaluation) countsAsDeparture(r *row) bool {
	status := r.status
	if r.moves {
		status = r.left
	}
	return status != probe.Failing && !r.dropped && !r.memory.deselected &&
		r.deniedBy != r.currentSource && !e.sources[r.currentSource].confirmedEmpty
}

// excessDepartures is the output guard shrink: a source's report alone takes at most half of its ready endpoints (or
// one) out of ready in one window; the next half takes a newer observation; and a new leader, which cannot know what the
// last one let go, lets none go in its first window. It returns those that stay.
func (e *evaluation) excessDepartures(source int) (held []*row) {
	leaving, ready := e.departures(source)
	s, size := &e.sources[source], e.input.Limits.ShrinkWindow
	if size <= 0 || len(leaving) == 0 {
		return nil
	}
	firstEnds := e.input.LeadingSince.Add(size)
	isFirst := e.now.Before(firstEnds)
	spends := !e.input.LeadingSince.IsZero() && !isFirst
	w := s.memory.window
	newer := w.opened.IsZero() || s.Epoch != w.epoch || s.Observation > w.observation
	// A window begins with the first departure that is written. Until then it begins anew, with half of what is ready now,
	// and those that were to leave go first. If one of them stays after all, the others may have been written with it: the
	// answer may come after this decision. Then it only begins later.
	granted := len(filter(leaving, (*row).isGranted))
	pending := !e.input.Paused && !w.begun && granted > 0
	open := !w.opened.IsZero() && (pending || e.now.Before(w.opened.Add(size)))
	if pending && open {
		w.opened = e.now
	}
	unwritten := pending && open && granted == w.used
	if unwritten {
		slices.SortStableFunc(leaving, func(a, b *row) int { return cmp.Compare(b.memory.grantedBy, a.memory.grantedBy) })
	}
	if spends && (!open && newer || unwritten) {
		w = shrinkWindow{opened: e.now, budget: max(1, ready/2), epoch: w.epoch, observation: w.observation}
		open = true
		replace(filter(e.rows, func(r *row) bool { return r.currentSource == source }), (*row).withdrawGrant)
	}
	may := open && spends
	for _, r := range leaving {
		switch {
		case !may:
			held = append(held, r)
		case r.isGranted():
		case w.used < w.budget:
			if !e.input.Paused {
				r.memory.grantedBy, r.memory.grantedAt = s.Name, r.current.Ports
			}
			w.used++
			w.epoch, w.observation = s.Epoch, s.Observation
		default:
			held = append(held, r)
		}
	}
	if !e.input.Paused { // else nothing is written, so nothing is spent
		s.memory.window = w
	}
	why, until := "than SHRINK_WINDOW allows", w.opened.Add(size)
	if isFirst {
		why, until = fmt.Sprintf("in the first %s of a new leader", size), firstEnds
	}
	e.note(departuresHeld, s.Name, len(held), why)
	if len(held) > 0 && (isFirst || may) {
		e.wakeAt(until)
	}
	return held
}

// hasLeft reports whether the slices do not list an endpoint as ready any more, at its ports of then, that the window of
// a source let go.
func (e *evaluation) hasLeft(source string) bool {
	return slices.ContainsFunc(e.previous.addresses, func(m addressMemory) bool {
		if m.grantedBy != source {
			return false
		}
		at, found := slices.BinarySearchFunc(e.rows, m.address, func(r *row, a netip.Addr) int { return r.address.Compare(a) })
		return !found || !e.rows[at].conditions().Ready || e.rows[at].current.Ports != m.grantedAt
	})
}

func (r *row) withdrawGrant() { r.memory.grantedBy = "" }

// isGranted reports whether an endpoint may leave and is still ready in the slices.
func (r *row) isGranted() bool { return r.memory.grantedBy != "" }
