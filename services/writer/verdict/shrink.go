package verdict

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/display"
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

// limitDepartures is the output guard shrink: a source's report alone takes at most half of its ready endpoints (or
// one) out of ready in one window, by whatever route; the next half takes a newer observation; and a new leader,
// which cannot know what the last one let go, lets none go in its first window. Endpoints whose probe fails too,
// that the allowlist denies, that our own settings drop or whose source is confirmed to be empty do not count:
// neither as departures nor as ready.
func (e *evaluation) limitDepartures() (guards []Guard) {
	if e.input.Limits.ShrinkWindow <= 0 {
		return nil
	}
	ready, leaving := make([]int, len(e.sources)), make([][]*row, len(e.sources))
	for i := range e.rows {
		r := &e.rows[i]
		if !r.conditions().Ready || r.currentSource == noSource {
			continue
		}
		if stays := r.result.Listed && r.result.Conditions.Ready && !r.moves; !stays {
			if !e.countsAsDeparture(r) {
				continue // it may have left already, and only the answer to that write was lost
			}
			leaving[r.currentSource] = append(leaving[r.currentSource], r)
		}
		ready[r.currentSource]++
	}
	for i := range e.sources {
		if len(leaving[i]) > 0 {
			guards = append(guards, e.spendBudget(i, ready[i], leaving[i]))
		}
	}
	return guards
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

// spendBudget lets those of a source go that may leave now, the oldest report first, and holds the rest.
func (e *evaluation) spendBudget(source, ready int, leaving []*row) Guard {
	slices.SortStableFunc(leaving, func(a, b *row) int { return a.memory.since.Compare(b.memory.since) })
	s, size := &e.sources[source], e.input.Limits.ShrinkWindow
	w := &s.memory.window
	if e.input.Paused { // nothing is written, so nothing is spent
		unspent := *w
		w = &unspent
	}
	leads := !e.input.LeadingSince.IsZero()
	first := e.now.Before(e.input.LeadingSince.Add(size))
	newer := w.opened.IsZero() || s.Epoch != w.epoch || s.Observation > w.observation
	// A window begins with the first departure that is written. Until then it begins anew, with half of what is ready now,
	// and those that were to leave go first. If one of them stays after all, the others may have been written with it: the
	// answer may come after this decision. Then it only begins later.
	granted := 0
	for _, r := range leaving {
		if isGranted(r) {
			granted++
		}
	}
	pending := !e.input.Paused && !w.begun && granted > 0
	open := !w.opened.IsZero() && (pending || e.now.Before(w.opened.Add(size)))
	if pending && open {
		w.opened = e.now
	}
	unwritten := pending && open && granted == w.used
	if unwritten {
		slices.SortStableFunc(leaving, func(a, b *row) int { return cmp.Compare(b.memory.grantedBy, a.memory.grantedBy) })
	}
	if leads && !first && (!open && newer || unwritten) {
		*w = shrinkWindow{opened: e.now, budget: max(1, ready/2), epoch: w.epoch, observation: w.observation}
		open = true
		e.withdrawGrants(source)
	}
	may, held := open && leads && !first, 0
	for _, r := range leaving {
		switch {
		case may && isGranted(r):
		case may && w.used < w.budget:
			if !e.input.Paused {
				r.memory.grantedBy, r.memory.grantedAt = s.Name, r.current.Ports
			}
			w.used++
			w.epoch, w.observation = s.Epoch, s.Observation
		default:
			r.hold(RuleShrink)
			r.result.Source = s.Name
			held++
		}
	}
	switch {
	case held == 0:
	case leads && first:
		e.wakeAt(e.input.LeadingSince.Add(size))
	case may:
		e.wakeAt(w.opened.Add(size))
	}
	return shrinkGuard(s.Name, held, first, size)
}

// hasLeft reports whether the slices do not list an endpoint as ready any more, at its ports of then, that the window of
// a source let go.
func (e *evaluation) hasLeft(source string) bool {
	return slices.ContainsFunc(e.previous.addresses, func(m addressMemory) bool {
		if m.grantedBy != source {
			return false
		}
		at, found := slices.BinarySearchFunc(e.rows, m.address, func(r row, a netip.Addr) int { return r.address.Compare(a) })
		return !found || !e.rows[at].conditions().Ready || e.rows[at].current.Ports != m.grantedAt
	})
}

func (e *evaluation) withdrawGrants(source int) {
	for i := range e.rows {
		if r := &e.rows[i]; r.currentSource == source {
			r.memory.grantedBy = ""
		}
	}
}

// isGranted reports whether an endpoint may leave and is still ready in the slices.
func isGranted(r *row) bool { return r.memory.grantedBy != "" }

func shrinkGuard(source string, held int, first bool, size time.Duration) Guard {
	why := "than SHRINK_WINDOW allows"
	if first {
		why = fmt.Sprintf("in the first %s of a new leader", size)
	}
	return Guard{Rule: RuleShrink, Source: source, Held: held, Message: fmt.Sprintf(
		"Source %s takes out %s %s: still ready.", source, display.Count(held, "more ready endpoint", "more ready endpoints"), why)}
}
