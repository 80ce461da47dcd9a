package verdict

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is one target: change something, let time pass, see what is listed.
type world struct {
	t   testing.TB
	now time.Time
	mem Memory
	in  Input
	d   Decision // the last one

	reselected map[string]bool // sources whose selector has changed since: what they leave out, it leaves out
}

// newWorld has one source "blue", trusted, whose n nodes are READY, passing and ready in the slices.
func newWorld(t testing.TB, n int) *world {
	w := &world{t: t, now: start, reselected: map[string]bool{}}
	w.in = Input{
		Limits:       Limits{ListUnready: true, Probing: true},
		LeadingSince: start.Add(-time.Hour),
	}
	w.in.Sources = []Source{trusted("blue")}
	for i := range n {
		w.report("blue", i, Ready)
		w.probe(i, probe.Passing)
		w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(i), Conditions: ready, Source: "blue"})
	}
	return w
}

func trusted(name string) Source {
	return Source{
		Name: name, EverSynced: true, Connected: true, MembershipSynced: true, MembershipSyncedAt: start,
		Epoch: "first", Observation: 10, ObservationAt: start,
		Allowlist: Allowlist{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
	}
}

// addr is the address of node n.
func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

func (w *world) source(name string) *Source {
	for i := range w.in.Sources {
		if w.in.Sources[i].Name == name {
			return &w.in.Sources[i]
		}
	}
	w.t.Fatalf("no source %s", name)
	return nil
}

func (w *world) report(source string, n int, state State) {
	s := w.source(source)
	s.Members = slices.DeleteFunc(slices.Clone(s.Members), func(m Member) bool { return m.Address == addr(n) })
	s.Members = append(s.Members, Member{Address: addr(n), Name: fmt.Sprint("node-", n), State: state})
	slices.SortFunc(s.Members, func(a, b Member) int { return a.Address.Compare(b.Address) })
}

// hold makes the slices list node n, after those that they list already.
func (w *world) hold(n int, source string, as Conditions) {
	w.in.Current = append(w.in.Current, CurrentEndpoint{Address: addr(n), Conditions: as, Source: source})
}

func (w *world) unlist(source string, n int) {
	s := w.source(source)
	var members []Member
	for _, m := range s.Members {
		if m.Address != addr(n) {
			members = append(members, m)
		}
	}
	if w.reselected[source] && len(members) < len(s.Members) {
		s.Deselected = append(s.Deselected, addr(n))
		slices.SortFunc(s.Deselected, netip.Addr.Compare)
	}
	s.Members = members
}

// reselect changes the selector of a source.
func (w *world) reselect(source, selector string) {
	w.source(source).Selector = selector
	w.reselected[source] = true
}

// setProbe adds or replaces the probe of an address.
func (w *world) setProbe(p probe.Status) {
	at, found := slices.BinarySearchFunc(w.in.Probes, p, compareProbes)
	if !found {
		w.in.Probes = slices.Insert(w.in.Probes, at, probe.Status{})
	}
	w.in.Probes[at] = p
}

// probeOf returns the probe of an address; without one it is pending.
func (w *world) probeOf(a netip.Addr) probe.Status {
	p, _ := w.in.Probe(a, 0)
	return p
}

// probe changes a probe status; one that passed did so until now.
func (w *world) probe(n int, h probe.Health) { w.probeAt(n, 0, h) }

func (w *world) probeAt(n int, port uint16, h probe.Health) {
	p := probe.Status{Address: addr(n), Port: port, Health: h, Since: w.now, RunStart: w.now, RunLast: w.now}
	if before, known := w.in.Probe(addr(n), port); !known {
		p.RunStart = w.now.Add(-time.Minute)
	} else if before.Health == h {
		p.RunStart = before.RunStart
	}
	w.setProbe(p)
}

// fail makes probes fail that failed first at some time, which was after they last passed.
func (w *world) fail(first time.Time, nodes ...int) {
	for _, n := range nodes {
		w.probe(n, probe.Failing)
		p := w.probeOf(addr(n))
		p.RunStart = first
		w.setProbe(p)
	}
}

// pass lets time pass; links that are alive stay synced.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for i := range w.in.Sources {
		if s := &w.in.Sources[i]; s.Connected {
			s.MembershipSyncedAt = w.now
		}
	}
	for i := range w.in.Probes {
		w.in.Probes[i].RunLast = w.now
	}
}

// shrinks turns the shrink guard on; we have led for long.
func (w *world) shrinks() { w.in.Limits.ShrinkWindow = time.Minute }

// takeover lets another process lead from now on: warm, but without our memory.
func (w *world) takeover() {
	w.mem = Memory{}
	w.in.LeadingSince = w.now
}

// observe completes an observation of a source.
func (w *world) observe(source string) {
	s := w.source(source)
	s.Observation++
	s.ObservationAt = w.now
}

// restart loses what this process remembers.
func (w *world) restart() {
	w.mem = Memory{}
	for i := range w.in.Sources {
		s := &w.in.Sources[i]
		s.EverSynced, s.Connected, s.MembershipSynced, s.Members, s.Epoch, s.Observation = false, false, false, nil, "", 0
	}
}

// decide writes the decision, and returns it as "0:ready 1:out".
func (w *world) decide() string {
	w.t.Helper()
	w.mem, w.d = Decide(w.mem, w.in, w.now)
	clear(w.reselected)
	for i := range w.in.Sources {
		w.in.Sources[i].Deselected = nil
	}
	held := held(w.d)
	if w.d.Write {
		w.in.Current = held
	}
	return picture(held)
}

// see wants a decision.
func (w *world) see(what, want string) {
	w.t.Helper()
	if got := w.decide(); got != want {
		w.t.Fatalf("%s: %q, want %q\n%s", what, got, want, reasons(w.d))
	}
	// Deciding again after the write changes nothing.
	before := held(w.d)
	w.mem, w.d = Decide(w.mem, w.in, w.now)
	if diff := cmp.Diff(before, held(w.d), byValue); diff != "" {
		w.t.Fatalf("%s: the second decision differs (-first +second):\n%s", what, diff)
	}
}

// unwritten wants a decision whose write fails.
func (w *world) unwritten(what, want string) {
	w.t.Helper()
	held := w.in.Current
	if got := w.decide(); got != want {
		w.t.Fatalf("%s: %q, want %q\n%s", what, got, want, reasons(w.d))
	}
	w.in.Current = held
}

func (w *world) wantGuards(want ...string) {
	w.t.Helper()
	got := []string{}
	for _, g := range w.d.Guards {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %d %s", g.Rule, g.Held, g.Source)))
	}
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		w.t.Fatalf("guards (-want +got):\n%s", diff)
	}
}

var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// held is what the slices list once a decision is written.
func held(d Decision) []CurrentEndpoint {
	var out []CurrentEndpoint
	for _, e := range d.Endpoints {
		if e.Listed {
			out = append(
				out,
				CurrentEndpoint{
					Address: e.Address, Conditions: e.Conditions, Source: e.Source, Zone: e.Zone, Hostname: e.Hostname, Ports: e.Ports,
				},
			)
		}
	}
	return out
}

// of returns the current endpoints of a source.
func of(held []CurrentEndpoint, source string) (all []CurrentEndpoint) {
	for _, h := range held {
		if h.sourceName() == source {
			all = append(all, h)
		}
	}
	return all
}

// reported returns the state that a source reports for an address, and whether it lists it.
func reportedState(s *Source, a netip.Addr) (state State, lists bool) {
	for _, m := range s.Members {
		if m.Address == a {
			return m.State, true
		}
	}
	return unlisted, false
}

// endpoint is what the last decision makes of an address.
func (w *world) endpoint(a netip.Addr) Endpoint { return w.d.endpoint(a) }

func (d *Decision) endpoint(a netip.Addr) Endpoint {
	for _, e := range d.Endpoints {
		if e.Address == a {
			return e
		}
	}
	return Endpoint{Address: a}
}

func picture(held []CurrentEndpoint) string {
	var parts []string
	for _, h := range held {
		a := h.Address.As16()
		name := fmt.Sprint(int(a[14])<<8 + int(a[15]))
		if h.sourceName() != "blue" {
			name += "@" + h.sourceName()
		}
		parts = append(parts, name+":"+condition(h.Conditions))
	}
	return strings.Join(parts, " ")
}

func condition(c Conditions) string {
	switch c {
	case ready:
		return "ready"
	case draining:
		return "drain"
	case Conditions{}:
		return "out"
	default:
		return fmt.Sprintf("%+v", c)
	}
}

func reasons(d Decision) string {
	var b strings.Builder
	for _, e := range d.Endpoints {
		fmt.Fprintf(&b, "%s %v listed=%v %s: %s\n", e.Address, e.Verdict, e.Listed, e.Rule, e.Reason)
	}
	return b.String()
}

// lists reports whether one of these has an address.
func lists(held []CurrentEndpoint, a netip.Addr) bool {
	return slices.ContainsFunc(held, func(h CurrentEndpoint) bool { return h.Address == a })
}
