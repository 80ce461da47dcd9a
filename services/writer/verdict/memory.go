package verdict

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Memory is what one decision leaves to the next. Losing it, as in a restart or a takeover, only makes the
// guards more patient.
type Memory struct {
	addresses  []addressMemory // sorted
	sources    []sourceMemory
	blindSince time.Time // see Decision.NonePassingSince
}

// addressMemory is kept of an address while one of its fields says something.
type addressMemory struct {
	address    netip.Addr
	source     string    // its owner
	grantedBy  string    // the source whose shrink window lets it go; until that is written
	grantedAt  Ports     // with which it was listed then
	since      time.Time // of report: shrink releases the oldest first
	report     State     // the last one of its owner while trusted; Unknown: none, or READY
	unlisted   bool      // it is not ready and not listed for that: no slice tells its source
	deselected bool      // it leaves because our own settings changed
}

func (m *addressMemory) at() netip.Addr { return m.address }

// changesNothing reports whether the next decision is the same without it. A last report that was READY is what an
// address without one is resumed as, and no such address leaves, so that its age does not matter.
func (m *addressMemory) changesNothing() bool {
	reports := m.report != Unknown && (m.report != Ready || m.grantedBy != "")
	return !reports && !m.unlisted && !m.deselected
}

// sourceMemory is kept of a source.
type sourceMemory struct {
	name     string
	selector string
	empty    emptyCount
	window   shrinkWindow

	lostSince   time.Time // since when nothing current is known of it; zero: it is, or its report is Unusable
	enoughSince time.Time // since when the tiers before its own have enough ready endpoints; zero: they have not
}

// rememberReport notes what the owner of an address reports, and since when. Unknown: nothing new.
func (e *evaluation) rememberReport(r *row, report State) {
	s := &e.sources[r.owner]
	known := false
	if r.previous.source == s.Name {
		known = r.previous.report != Unknown
		r.memory.report, r.memory.since = r.previous.report, r.previous.since
		// Another selection is another reason, unless it leaves the address out as well: when it is undone while the
		// source is suppressed, nobody knows afterwards why the address is gone.
		r.memory.deselected = r.previous.deselected && (s.previous.selector == s.Selector || report == unlisted)
	}
	_, dropped := slices.BinarySearchFunc(s.Deselected, r.address, netip.Addr.Compare)
	r.memory.deselected = (report == Unknown || report == unlisted) && (r.memory.deselected || dropped)
	if report != Unknown && (!known || report != r.memory.report) {
		r.memory.report, r.memory.since = report, e.now
	}
}

// lastTrustedReport is what a suppressed owner reported of an address while it was trusted; Unknown: nothing that
// counts. A report that is empty for this target counts only once it is confirmed, and then it is in memory already.
func (e *evaluation) lastTrustedReport(r *row) State {
	s := &e.sources[r.owner]
	if s.suppressedBy != &sourceNotTrusted {
		return Unknown
	}
	at, found := slices.BinarySearchFunc(s.Trusted, r.address, func(m Member, a netip.Addr) int { return m.Address.Compare(a) })
	switch {
	case found:
		return s.Trusted[at].State
	case s.lastReportUsable:
		return unlisted
	}
	return Unknown
}

// rememberAddress keeps what the next decision needs to know of an address.
func (e *evaluation) rememberAddress(r *row) {
	m := r.memory
	m.address, m.source = r.address, cmp.Or(m.source, r.result.Source)
	m.unlisted = r.result.Verdict != Remove && r.result.Verdict != StandBy && !r.result.Listed &&
		(r.current != nil || r.previous.unlisted)
	if !m.changesNothing() {
		e.memory.addresses = append(e.memory.addresses, m)
	}
}
