package verdict

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
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

// isWorthless reports whether the next decision is the same without it. A last report that was READY is what an
// address without one is resumed as, and no such address leaves, so that its age does not matter.
func (m *addressMemory) isWorthless() bool {
	says := m.report != Unknown && (m.report != Ready || m.grantedBy != "")
	return !says && !m.unlisted && !m.deselected
}

// sourceMemory is kept of a source.
type sourceMemory struct {
	name     string
	selector string

	// The complete observations of one epoch that reported the source empty, in a row. emptyLast is the last that
	// counted; before any did, the one in force when the source was last seen not empty, or first seen at all.
	emptyEpoch string
	emptyLast  uint64
	emptyCount int
	emptyAt    time.Time // when emptyLast was received

	window shrinkWindow

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
		r.memory.deselected = r.previous.deselected && (!s.selectorChanged || report == unlisted)
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
	if s.suppressedBy != RuleTrust {
		return Unknown
	}
	if s.lastReports == nil {
		s.lastReports = make(map[netip.Addr]State, len(s.Trusted))
		for _, m := range s.Trusted {
			s.lastReports[m.Address] = m.State
			status, _ := e.input.Probe(m.Address, m.Ports.Probe)
			usable := m.State != NotReady || e.input.Limits.Probing && status.Health == probe.Passing
			s.lastReportUsable = s.lastReportUsable || usable && m.Unusable == "" && s.Allowlist.denyReason(m.Address) == ""
		}
	}
	report, listed := s.lastReports[r.address]
	switch {
	case listed:
		return report
	case s.lastReportUsable:
		return unlisted
	}
	return Unknown
}

// rememberAddresses keeps what the next decision needs to know of each address.
func (e *evaluation) rememberAddresses() {
	for i := range e.rows {
		r := &e.rows[i]
		m := r.memory
		m.address, m.source = r.address, cmp.Or(m.source, r.result.Source)
		m.unlisted = r.result.Verdict != Remove && r.result.Verdict != StandBy && !r.result.Listed &&
			(r.current != nil || r.previous.unlisted)
		if !m.isWorthless() {
			e.memory.addresses = append(e.memory.addresses, m)
		}
	}
}
