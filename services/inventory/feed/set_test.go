package feed

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func testNode(name string, state roster.NodeState, more ...func(*roster.Node)) *roster.Node {
	n := &roster.Node{
		Name: name, UID: "uid-" + name, State: state, Since: start,
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
	for _, f := range more {
		f(n)
	}
	return n
}

func withLabels(kv ...string) func(*roster.Node) {
	return func(n *roster.Node) {
		n.Labels = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			n.Labels[kv[i]] = kv[i+1]
		}
	}
}

func upserts(nodes ...*roster.Node) (changes []roster.Change) {
	for _, n := range nodes {
		changes = append(changes, roster.Change{Name: n.Name, Node: n})
	}
	return changes
}

func removals(names ...string) (changes []roster.Change) {
	for _, name := range names {
		changes = append(changes, roster.Change{Name: name})
	}
	return changes
}

func publish(s *Set) *Set { s.Publish(publishedStatus(1), nil); return s }

func upsertNames(u stream.Update[*roster.Node, roster.Status]) []string {
	var all []string
	for _, e := range u.Upserts {
		all = append(all, e.Value.Name)
	}
	return all
}

// fingerprint returns the fingerprint that is published of a node.
func fingerprint(n *roster.Node) contract.Digest {
	s := NewSet("", "e")
	apply(s, upserts(n))
	return s.Snapshot().Upserts[0].Fingerprint
}

// apply changes nodes under the same status.
func apply(s *Set, changes []roster.Change) {
	now, _ := s.Status()
	s.Publish(now, changes)
}

func TestR4FingerprintIsStable(t *testing.T) {
	n := testNode("worker-1", roster.Ready, withLabels("zone", "a", "pool", "blue"))
	n.Addresses = append(n.Addresses, netip.MustParseAddr("fd00::1"))
	n.Zone, n.Region = "de/fra/1", "de/fra"
	got := fingerprint(n)
	// A golden value: if the fingerprints of two versions differ, every client receives its complete set
	// again when it moves between their replicas.
	checkEqual(t, "fingerprint", hex.EncodeToString(got[:]), "98d56cdf5836265a72027cace4f44245")
}

func TestR4FingerprintCoversPublishedContent(t *testing.T) {
	base := func() *roster.Node {
		return testNode("a", roster.Ready, withLabels("k", "v", "k2", "v2"))
	}
	of := fingerprint
	seen := map[contract.Digest]string{of(base()): "the unchanged node"}
	for what, alter := range map[string]func(*roster.Node){
		"name":                                   func(n *roster.Node) { n.Name = "b" },
		"uid":                                    func(n *roster.Node) { n.UID = "other" },
		"address":                                func(n *roster.Node) { n.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.2")} },
		"another address":                        func(n *roster.Node) { n.Addresses = append(n.Addresses, netip.MustParseAddr("fd00::1")) },
		"state":                                  func(n *roster.Node) { n.State = roster.NotReady },
		"zone":                                   func(n *roster.Node) { n.Zone = "z" },
		"region":                                 func(n *roster.Node) { n.Region = "z" },
		"hostname":                               func(n *roster.Node) { n.Hostname = "db-0" },
		"a port":                                 func(n *roster.Node) { n.Ports = []contract.Port{{Protocol: "TCP", Number: 80}} },
		"value of a label":                       func(n *roster.Node) { n.Labels["k"] = "w" },
		"one label fewer":                        func(n *roster.Node) { delete(n.Labels, "k") },
		"moved between key and value of a label": func(n *roster.Node) { delete(n.Labels, "k"); n.Labels["kv"] = "" },
		"moved between name and uid":             func(n *roster.Node) { n.Name, n.UID = "auid-", "a" },
	} {
		n := base()
		alter(n)
		if other, taken := seen[of(n)]; taken {
			t.Errorf("%s: the fingerprint is that of %s", what, other)
		}
		seen[of(n)] = what
	}
	n := base()
	n.Since, n.ProviderID, n.ServerID = start.Add(time.Hour), "ionos://x", "x"
	if of(n) != of(base()) {
		t.Error("age or cloud identifiers are part of the fingerprint")
	}
}

func TestR4DigestIsXOROfFingerprints(t *testing.T) {
	s := publish(NewSet("", "e"))
	apply(s, upserts(testNode("a", roster.Ready), testNode("b", roster.Ready), testNode("c", roster.Draining)))
	apply(s, upserts(testNode("b", roster.NotReady)))
	apply(s, removals("a", "unknown"))
	var sum contract.Digest
	u := s.Since(nil, nil)
	for _, e := range u.Upserts {
		sum.XOR(e.Fingerprint)
	}
	checkEqual(t, "digest", u.At.Digest, sum)
	apply(s, removals("b", "c"))
	checkEqual(t, "digest of the empty set", s.Since(nil, nil).At.Digest, contract.Digest{})
}

func TestR5MatchingDigestNeedsNoChanges(t *testing.T) {
	a, b := publish(NewSet("", "replica-a")), publish(NewSet("", "replica-b"))
	apply(a, upserts(testNode("x", roster.NotReady), testNode("y", roster.Ready)))
	apply(a, upserts(testNode("x", roster.Ready)))
	apply(b, upserts(testNode("y", roster.Ready), testNode("x", roster.Ready)))
	at := a.Since(nil, nil).At
	u := b.Since(&at, nil)
	if !u.Synced || u.Reset || u.Size() > 0 || u.Count != 2 || u.At.Epoch != "replica-b" || u.At.Revision != 2 {
		t.Errorf("update of the other replica: %+v", u)
	}
	empty := publish(NewSet("", "replica-c"))
	if u := empty.Since(&stream.Position{Epoch: "old"}, nil); !u.Synced || u.Reset || u.Size() > 0 || u.Count != 0 {
		t.Errorf("update of an empty set: %+v", u)
	}
}

func TestR6ReturnsChangesSinceCursor(t *testing.T) {
	s := publish(NewSet("", "e"))
	apply(s, upserts(testNode("a", roster.Ready), testNode("b", roster.Ready), testNode("c", roster.Ready)))
	at := s.Since(nil, nil).At
	apply(s, upserts(testNode("d", roster.Ready), testNode("a", roster.NotReady)))
	apply(s, removals("b", "d")) // d was added and removed
	apply(s, upserts(testNode("a", roster.Draining), testNode("e", roster.Ready)))
	apply(s, removals("c"))
	apply(s, upserts(testNode("c", roster.Ready, func(n *roster.Node) { n.UID = "another" })))
	u := s.Since(&at, nil)
	if u.Reset || !u.Synced {
		t.Fatalf("update: %+v", u)
	}
	checkEqual(t, "upserts", upsertNames(u), []string{"a", "c", "e"})
	checkEqual(t, "removed", u.Removed, []string{"b"})
	checkEqual(t, "newest state", u.Upserts[0].Value.State, roster.Draining)
}

func TestR7ResetsForUnknownPosition(t *testing.T) {
	s := publish(newSet("", "e", 4))
	apply(s, upserts(testNode("a", roster.Ready)))
	var past []stream.Position
	for i := range 6 {
		past = append(past, s.Since(nil, nil).At)
		apply(s, upserts(testNode("b", roster.Ready, func(n *roster.Node) { n.UID = strconv.Itoa(i) })))
	}
	last := past[len(past)-1]
	alter := func(f func(*stream.Position)) *stream.Position { p := last; f(&p); return &p }
	for what, c := range map[string]struct {
		at    *stream.Position
		reset bool
	}{
		"no position":              {nil, true},
		"the last change":          {&last, false},
		"the edge of the window":   {&past[2], false},
		"beyond the window":        {&past[1], true},
		"another epoch":            {alter(func(p *stream.Position) { p.Epoch = "f" }), true},
		"a revision of the future": {alter(func(p *stream.Position) { p.Revision = 1000 }), true},
		"the greatest revision":    {alter(func(p *stream.Position) { p.Revision = 1<<64 - 1 }), true},
		"the current revision":     {alter(func(p *stream.Position) { p.Revision++ }), true},
		"an unknown digest":        {alter(func(p *stream.Position) { p.Digest[3] ^= 1 }), true},
	} {
		if u := s.Since(c.at, nil); u.Reset != c.reset || !u.Synced {
			t.Errorf("%s: reset is %v", what, u.Reset)
		} else if u.Reset {
			checkEqual(t, what, upsertNames(u), []string{"a", "b"})
		}
	}
}

func TestR8SendsOnlyStatusBeforeFirstPublication(t *testing.T) {
	s := NewSet("", "e")
	apply(s, upserts(testNode("a", roster.Ready)))
	s.Publish(roster.Status{Membership: roster.PartStatus{Sync: roster.Unsynced, Reason: "starting"}}, nil)
	if u := s.Since(nil, nil); u.Synced || u.Reset || u.Size() > 0 || u.Status.Membership.Reason != "starting" {
		t.Errorf("before the first publication: %+v", u)
	}
	if u := s.Snapshot(); u.Synced || len(u.Upserts) != 1 {
		t.Errorf("snapshot before the first publication: %+v", u)
	}
	publish(s)
	at := s.Since(nil, nil).At
	withdrawn := publishedStatus(1)
	withdrawn.Publishable = false
	s.Publish(withdrawn, nil)
	if u := s.Since(&at, nil); u.Synced || (u.Reset || u.Size() > 0) {
		t.Errorf("while nothing is published: %+v", u)
	}
}

func TestChangedWakesReaders(t *testing.T) {
	older := publishedStatus(1)
	older.ObservedAt, older.Membership.Since = start.Add(time.Hour), start.Add(time.Hour)
	degraded := publishedStatus(1)
	degraded.Addresses = roster.PartStatus{Sync: roster.Degraded, Reason: "503"}
	for _, c := range []struct {
		name  string
		do    func(*Set)
		wakes bool
	}{
		{"a change of the set", func(s *Set) { apply(s, removals("a")) }, true},
		{"a change without content", func(s *Set) { apply(s, removals("b")) }, false},
		{"another observation", func(s *Set) { s.Publish(publishedStatus(2), nil) }, true},
		{"a part degraded", func(s *Set) { s.Publish(degraded, nil) }, true},
		{"only ages", func(s *Set) { s.Publish(older, nil) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := publish(NewSet("", "e"))
			apply(s, upserts(testNode("a", roster.Ready)))
			_, changed := s.Status()
			c.do(s)
			select {
			case <-changed:
				checkEqual(t, "woken", true, c.wakes)
			default:
				checkEqual(t, "woken", false, c.wakes)
			}
		})
	}
}

func TestSameStatusIgnoresAges(t *testing.T) {
	for name, tc := range map[string]struct {
		alter func(*roster.Status)
		same  bool
	}{
		"nothing":              {func(*roster.Status) {}, true},
		"ages":                 {func(s *roster.Status) { s.ObservedAt, s.Membership.Since = time.Time{}, start }, true},
		"published":            {func(s *roster.Status) { s.Publishable = false }, false},
		"the observation":      {func(s *roster.Status) { s.Observation++ }, false},
		"membership":           {func(s *roster.Status) { s.Membership.Sync = roster.Degraded }, false},
		"reason of membership": {func(s *roster.Status) { s.Membership.Reason = "503" }, false},
		"addresses":            {func(s *roster.Status) { s.Addresses.Sync = roster.Degraded }, false},
		"reason of addresses":  {func(s *roster.Status) { s.Addresses.Reason = "503" }, false},
	} {
		s := publishedStatus(1)
		tc.alter(&s)
		checkEqual(t, name, sameStatus(publishedStatus(1), s), tc.same)
		checkEqual(t, name+", swapped", sameStatus(s, publishedStatus(1)), tc.same)
	}
}
