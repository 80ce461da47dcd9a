package subscriber

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// mirrorOf returns a mirror during a stream, with these nodes at epoch e, revision 10.
func mirrorOf(t *testing.T, set ...*wireNode) *Mirror {
	t.Helper()
	mirror := NewMirror()
	mirror.BeginStream()
	applyMessages(t, mirror, completeSet("e", 10, set...))
	return mirror
}

func applyMessages(t *testing.T, mirror *Mirror, messages ...*message) {
	t.Helper()
	for i, m := range messages {
		if _, err := mirror.Apply(noon, m); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
}

// memberLines returns the nodes of the set with their addresses, sorted by name.
func memberLines(s Snapshot) []string {
	addresses := map[string][]string{}
	for _, m := range s.Members {
		addresses[m.Name] = append(addresses[m.Name], m.Address.String())
	}
	all := []string{}
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		all = append(all, name+" "+strings.Join(addresses[name], " "))
	}
	return all
}

func byAddress(a, b *verdict.Member) int { return a.Address.Compare(b.Address) }

func memberNamed(s Snapshot, name string) *verdict.Member {
	for _, m := range s.Members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

func checkEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var a, b, c = node("a", "10.0.0.1"), node("b", "10.0.0.2"), node("c", "fd00::3")

func TestR1AppliesOnlySyncedStates(t *testing.T) {
	mirror := mirrorOf(t, a, b)
	before := mirror.Snapshot()
	applyMessages(t, mirror, &message{Status: sourceStatus(1), Upserts: []*wireNode{c}, Removed: []string{"a"}})
	checkEqual(t, "members while a change is staged", memberLines(mirror.Snapshot()), []string{"a 10.0.0.1", "b 10.0.0.2"})
	checkEqual(t, "cursor while a change is staged", mirror.Snapshot().Cursor, before.Cursor)

	mirror.BeginStream() // the stream ended before the change was synced
	cursor, digest, ok := mirror.ResumePoint()
	checkEqual(t, "cursor for the next stream", cursor, Cursor{"e", 10})
	checkEqual(t, "digest for the next stream", digest[:], digestOf([]*wireNode{a, b}))
	checkEqual(t, "has a cursor", ok, true)
	applyMessages(t, mirror, synced("e", 10, []*wireNode{a, b}))
	checkEqual(t, "members of the next stream", memberLines(mirror.Snapshot()), []string{"a 10.0.0.1", "b 10.0.0.2"})
}

func TestR2StagesResetBesideCurrentSet(t *testing.T) {
	mirror := mirrorOf(t, a, b)
	applyMessages(t, mirror, &message{Status: sourceStatus(1), Reset_: true, Upserts: []*wireNode{c}})
	checkEqual(t, "members while a reset is staged", memberLines(mirror.Snapshot()), []string{"a 10.0.0.1", "b 10.0.0.2"})
	// A second reset replaces the first.
	applyMessages(t, mirror, &message{Status: sourceStatus(1), Reset_: true, Upserts: []*wireNode{b}})
	applyMessages(t, mirror, synced("f", 1, []*wireNode{b}))
	checkEqual(t, "members", memberLines(mirror.Snapshot()), []string{"b 10.0.0.2"})
	checkEqual(t, "cursor", mirror.Snapshot().Cursor, Cursor{"f", 1})
	// The index of addresses must not keep nodes of the old set.
	d := node("d", "10.0.0.1")
	applyMessages(t, mirror, synced("f", 2, []*wireNode{b, d}, upserts(d)))
	checkEqual(t, "members", memberLines(mirror.Snapshot()), []string{"b 10.0.0.2", "d 10.0.0.1"})
}

func TestR3AppliesChunksTogether(t *testing.T) {
	var set []*wireNode
	for i := range 1201 {
		set = append(set, node(fmt.Sprintf("n%04d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
	}
	mirror := NewMirror()
	mirror.BeginStream()
	applyMessages(t, mirror,
		&message{Status: sourceStatus(1), Reset_: true, Upserts: set[:500]},
		&message{Status: sourceStatus(1), Upserts: set[500:1000]})
	checkEqual(t, "members before the last chunk", len(mirror.Snapshot().Members), 0)
	applyMessages(t, mirror, synced("e", 1201, set, upserts(set[1000:]...)))
	checkEqual(t, "members", len(mirror.Snapshot().Members), 1201)
	if !slices.IsSortedFunc(mirror.Snapshot().Members, byAddress) {
		t.Error("members are not sorted")
	}
	_, err := mirror.Apply(noon, synced("e", 1202, set, upserts(make([]*wireNode, 501)...)))
	checkViolation(t, err, LimitExceeded)
}

func TestR4DigestIsXOROfReceivedFingerprints(t *testing.T) {
	mirror := mirrorOf(t, a, b)
	changed := node("a", "10.0.0.1", "a field of a newer server")
	applyMessages(t, mirror,
		synced("e", 11, []*wireNode{changed, b}, upserts(changed)),
		synced("e", 12, []*wireNode{changed, b, c}, upserts(c)),
		synced("e", 13, []*wireNode{changed, c}, removed("b")),
		synced("e", 14, nil, removed("a", "c")))
	checkEqual(t, "members", memberLines(mirror.Snapshot()), []string{})
	checkEqual(t, "digest of the empty set", mirror.digest, contract.Digest{})
}

func checkViolation(t *testing.T, err error, kind ViolationKind) {
	t.Helper()
	b := (*Violation)(nil)
	if !errors.As(err, &b) {
		t.Fatalf("no violation of kind %s: %v", kind, err)
	}
	checkEqual(t, "kind of violation", b.Kind, kind)
}

func TestR13DetectsViolationsAndKeepsSet(t *testing.T) {
	altered := func(f func(*wireNode)) *wireNode {
		n := proto.Clone(c).(*wireNode)
		f(n)
		return n
	}
	addressed := func(texts ...string) *message {
		n := altered(func(n *wireNode) { n.Addresses = texts })
		return synced("e", 11, []*wireNode{a, b, n}, upserts(n))
	}
	with := func(f func(*wireNode)) *message {
		return &message{Status: sourceStatus(1), Upserts: []*wireNode{altered(f)}}
	}
	ported := func(ports ...*inventoryv1.SourcePort) *message { return with(func(n *wireNode) { n.Ports = ports }) }
	next := []*wireNode{a, b, c}
	type row struct {
		name string
		kind ViolationKind
		m    *message
	}
	rows := []row{
		{"an upsert without a name", InvalidName, with(func(n *wireNode) { n.Name = "" })},
		{"a name that is too long", InvalidName, with(func(n *wireNode) { n.Name = strings.Repeat("n", 254) })},
		{"an upsert without an address", InvalidAddress, addressed()},
		{"two addresses of one family", InvalidAddress, addressed("10.0.0.8", "10.0.0.9")},
		{"three addresses", InvalidAddress, addressed("10.0.0.8", "fd00::1", "fd00::2")},
		{"no fingerprint", InvalidFingerprint, with(func(n *wireNode) { n.Fingerprint = nil })},
		{"a long fingerprint", InvalidFingerprint, with(func(n *wireNode) { n.Fingerprint = make([]byte, 17) })},
		{"too many ports", LimitExceeded, ported(make([]*inventoryv1.SourcePort, 17)...)},
		{"an invalid port", LimitExceeded, ported(&inventoryv1.SourcePort{Port: 65536})},
		{"a port of 0", LimitExceeded, ported(&inventoryv1.SourcePort{})},
		{"two nodes of one name in a message", DuplicateName, synced("e", 11, next, upserts(c, c))},
		{"a name removed twice in a message", DuplicateName, synced("e", 11, next, removed("a", "a"))},
		{"a name removed and upserted", RemovedAndUpserted, synced("e", 11, []*wireNode{a, b}, upserts(a), removed("a"))},
		{"removal of an unknown node", UnknownRemoval, synced("e", 11, []*wireNode{a, b}, removed("unknown"))},
		{
			"removal of a node that a reset did not bring",
			UnknownRemoval,
			&message{Status: sourceStatus(1), Reset_: true, Removed: []string{"a"}},
		},
		{"a count that is too high", CountMismatch, synced("e", 11, next, upserts(c), func(m *message) { m.Count = 4 })},
		{"a count that is too low", CountMismatch, synced("e", 11, next, upserts(c), func(m *message) { m.Count = 2 })},
		{"a wrong digest", DigestMismatch, synced("e", 11, next, upserts(c), func(m *message) { m.Digest[0] ^= 1 })},
		{"no digest", DigestMismatch, synced("e", 11, next, upserts(c), func(m *message) { m.Digest = nil })},
		{"a missed removal", CountMismatch, synced("e", 11, []*wireNode{a})},
		{"a revision that decreases", RevisionDecreased, synced("e", 9, []*wireNode{a, b})},
		{"a revision that decreases by a reset", RevisionDecreased, completeSet("e", 9, a)},
		{"an observation that decreases", ObservationDecreased, synced("e", 11, []*wireNode{a, b}, observed(0))},
		{"an observation that decreases in a status", ObservationDecreased, &message{Status: sourceStatus(0)}},
		{"an observation that decreases by a reset", ObservationDecreased, synced("e", 11, []*wireNode{a}, reset, upserts(a), observed(0))},
		{"an epoch that changes without a reset", EpochChanged, synced("f", 11, []*wireNode{a, b})},
		{"synced without status", IncompleteSynced, synced("e", 11, []*wireNode{a, b}, func(m *message) { m.Status = nil })},
		{"synced without cursor", IncompleteSynced, synced("e", 11, []*wireNode{a, b}, func(m *message) { m.Cursor = nil })},
		{"synced with an empty epoch", IncompleteSynced, synced("", 11, []*wireNode{a, b})},
		{"an epoch that is too long", LimitExceeded, completeSet(strings.Repeat("e", 65), 11, a)},
		{"a UID that is too long", LimitExceeded, with(func(n *wireNode) { n.Uid = strings.Repeat("u", 129) })},
		{"a zone that is too long", LimitExceeded, with(func(n *wireNode) { n.Zone = strings.Repeat("z", 64) })},
		{"a hostname that is too long", InvalidName, with(func(n *wireNode) { n.Hostname = strings.Repeat("h", 64) })},
		{"a hostname with a dot", InvalidName, with(func(n *wireNode) { n.Hostname = "db.0" })},
		{"a hostname in capitals", InvalidName, with(func(n *wireNode) { n.Hostname = "DB" })},
		{"a label that is too long", LimitExceeded, with(func(n *wireNode) { n.Labels = map[string]string{"k": strings.Repeat("v", 64)} })},
		{"too many labels", LimitExceeded, with(func(n *wireNode) {
			n.Labels = map[string]string{}
			for i := range 257 {
				n.Labels[fmt.Sprint(i)] = ""
			}
		})},
		{"too many removed names", LimitExceeded, &message{Status: sourceStatus(1), Removed: make([]string, 501)}},
		{"a nil node", InvalidName, &message{Status: sourceStatus(1), Upserts: []*wireNode{nil}}},
	}
	for _, text := range []string{
		"", "10.0.0", "010.0.0.1", "10.0.0.1/24", " 10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "FD00::1", "fd00:0::1", "0.0.0.0", "::", "host",
	} {
		rows = append(rows, row{fmt.Sprintf("address %q", text), InvalidAddress, addressed(text)})
	}
	taken := node("c", "10.0.0.1")
	rows = append(rows,
		row{"an address of the current set", DuplicateAddress, synced("e", 11, []*wireNode{a, b, taken}, upserts(taken))},
		row{"one address twice in a change", DuplicateAddress, synced("e", 11, []*wireNode{b, taken}, removed("a"),
			func(m *message) {
				d := node("d", "10.0.0.1")
				m.Upserts, m.Count, m.Digest = []*wireNode{taken, d}, 3, digestOf([]*wireNode{b, taken, d})
			})},
		row{"one address twice in a reset", DuplicateAddress, completeSet("e", 11, a, taken)})
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			mirror := mirrorOf(t, a, b)
			before := mirror.Snapshot()
			_, err := mirror.Apply(noon, r.m)
			checkViolation(t, err, r.kind)
			checkEqual(t, "members afterwards", memberLines(mirror.Snapshot()), []string{"a 10.0.0.1", "b 10.0.0.2"})
			checkEqual(t, "the same set afterwards", SameSet(mirror.Snapshot().Members, before.Members), true)

			mirror.ClearCursor()
			if _, _, ok := mirror.ResumePoint(); ok {
				t.Error("the next stream would start with a cursor")
			}
			checkEqual(t, "members after starting over", memberLines(mirror.Snapshot()), []string{"a 10.0.0.1", "b 10.0.0.2"})
			// The next stream may have a lower revision and observation.
			applyMessages(t, mirror, synced("e", 1, []*wireNode{c}, reset, upserts(c), observed(0)))
			checkEqual(t, "members of the next state", memberLines(mirror.Snapshot()), []string{"c fd00::3"})
		})
	}
}

func TestAcceptsUnusualButValidMessages(t *testing.T) {
	swapA, swapB := node("a", "10.0.0.2"), node("b", "10.0.0.1")
	for _, row := range []struct {
		name     string
		messages []*message
		members  []string
	}{
		{"two nodes that swap their addresses", []*message{synced("e", 11, []*wireNode{swapA, swapB}, upserts(swapA, swapB))}, []string{"a 10.0.0.2", "b 10.0.0.1"}},
		{"an address that moves to another node in another chunk", []*message{
			{Status: sourceStatus(1), Upserts: []*wireNode{node("c", "10.0.0.1")}},
			synced("e", 12, []*wireNode{b, node("c", "10.0.0.1")}, removed("a")),
		}, []string{"b 10.0.0.2", "c 10.0.0.1"}},
		{"a node in two chunks of a reset", []*message{
			{Status: sourceStatus(1), Reset_: true, Upserts: []*wireNode{a, b}},
			synced("e", 12, []*wireNode{swapA}, upserts(swapA), removed("b")),
		}, []string{"a 10.0.0.2"}},
		{"a replacement of the same name and address", []*message{synced("e", 12, []*wireNode{node("a", "10.0.0.1", "2"), b}, upserts(node("a", "10.0.0.1", "2")))}, []string{"a 10.0.0.1", "b 10.0.0.2"}},
		{"another epoch with a reset, its numbers from the start", []*message{synced("f", 1, []*wireNode{c}, reset, upserts(c), observed(0))}, []string{"c fd00::3"}},
		{"a status without synced", []*message{{Status: sourceStatus(1)}}, []string{"a 10.0.0.1", "b 10.0.0.2"}},
		{"a message without anything", []*message{{}}, []string{"a 10.0.0.1", "b 10.0.0.2"}},
		{"the revision of the cursor with another digest", []*message{synced("e", 10, []*wireNode{a, b, c}, upserts(c))}, []string{"a 10.0.0.1", "b 10.0.0.2", "c fd00::3"}},
		{"cursor, count and digest without synced", []*message{
			{Status: sourceStatus(1), Cursor: &inventoryv1.Cursor{Epoch: "x", Revision: 1}, Count: 9, Digest: []byte("x")},
		}, []string{"a 10.0.0.1", "b 10.0.0.2"}},
		{"an age below zero", []*message{synced("e", 11, []*wireNode{a, b}, func(m *message) {
			m.Status.ObservationAge = durationpb.New(-time.Hour)
		})}, []string{"a 10.0.0.1", "b 10.0.0.2"}},
		{"both families", []*message{synced("e", 12, []*wireNode{a, b, dualStack}, upserts(dualStack))}, []string{"a 10.0.0.1", "b 10.0.0.2", "both 10.0.0.7 fd00::7"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			mirror := mirrorOf(t, a, b)
			applyMessages(t, mirror, row.messages...)
			checkEqual(t, "members", memberLines(mirror.Snapshot()), row.members)
		})
	}
	t.Run("another replica's epoch and numbers at the start of a stream", func(t *testing.T) {
		mirror := mirrorOf(t, a, b)
		mirror.BeginStream()
		applyMessages(t, mirror, synced("f", 2, []*wireNode{a, b}, observed(0)))
		checkEqual(t, "cursor", mirror.Snapshot().Cursor, Cursor{"f", 2})
	})
}

var dualStack = func() *wireNode {
	n := node("both", "10.0.0.7")
	n.Addresses = append(n.Addresses, "fd00::7")
	return n
}()

func TestR7StagesOnItsSetWithoutAReset(t *testing.T) {
	mirror := mirrorOf(t, a, b)
	mirror.ClearCursor()
	applyMessages(t, mirror, synced("f", 1, []*wireNode{a, b, c}, upserts(c)))
	checkEqual(t, "members", memberLines(mirror.Snapshot()), []string{"a 10.0.0.1", "b 10.0.0.2", "c fd00::3"})
}

func TestR12AcceptsUnknownValues(t *testing.T) {
	n := node("n", "10.0.0.9")
	n.State = 77
	n.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 0x01}) // field 2047, a varint
	m := synced("e", 11, []*wireNode{a, b, n}, upserts(n))
	m.Status.Membership = &inventoryv1.PartStatus{State: 42}
	m.Status.Addresses = nil
	mirror := mirrorOf(t, a, b)
	applyMessages(t, mirror, m)
	s := mirror.Snapshot()
	checkEqual(t, "state of the node", memberNamed(s, "n").State, verdict.Unknown)
	checkEqual(t, "membership", s.Membership.State, Degraded)
	checkEqual(t, "addresses", s.Addresses.State, Degraded)
}

func TestAStatusMayWithholdTheSet(t *testing.T) {
	mirror := mirrorOf(t, a)
	m := &message{Status: sourceStatus(1)}
	m.Status.Membership = &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_WITHHELD, Reason: "not exported"}
	applyMessages(t, mirror, m)
	s := mirror.Snapshot()
	checkEqual(t, "members", len(s.Members), 1)
	checkEqual(t, "reason without a connection", s.WithheldReason(), "")
	s.Connected = true
	checkEqual(t, "reason", s.WithheldReason(), "the inventory withholds the set: not exported")
}

func TestR8AppliesObservationWithSyncedMessage(t *testing.T) {
	mirror := mirrorOf(t, a, b)
	applyMessages(t, mirror, &message{Status: sourceStatus(7), Upserts: []*wireNode{c}})
	checkEqual(t, "observation while a change is staged", mirror.Snapshot().Observation, uint64(1))
	later := noon.Add(time.Minute)
	if _, err := mirror.Apply(later, synced("e", 11, []*wireNode{a, b, c}, observed(7))); err != nil {
		t.Fatal(err)
	}
	s := mirror.Snapshot()
	checkEqual(t, "observation", s.Observation, uint64(7))
	checkEqual(t, "its epoch", s.ObservationEpoch, "e")
	checkEqual(t, "received", s.ObservationReceivedAt, later)
	checkEqual(t, "observed", s.ObservedAt, later.Add(-3*time.Second))
	// A heartbeat does not change it.
	if _, err := mirror.Apply(later.Add(time.Hour), synced("e", 11, []*wireNode{a, b, c}, observed(7))); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "received, after a heartbeat", mirror.Snapshot().ObservationReceivedAt, later)
}

func TestConvertsAgesToLocalClock(t *testing.T) {
	mirror := mirrorOf(t, a)
	s := mirror.Snapshot()
	checkEqual(t, "member since", s.Members[0].Since, noon.Add(-time.Minute))
	checkEqual(t, "membership since", s.Membership.Since, noon.Add(-time.Hour))
	checkEqual(t, "membership synced at", s.MembershipSyncedAt, noon)

	// The same moment reported again with a delay; then a degraded membership.
	m := synced("e", 10, []*wireNode{a})
	m.Status.Membership = &inventoryv1.PartStatus{
		State: inventoryv1.SyncState_SYNC_STATE_SYNCED,
		Age:   durationpb.New(time.Hour + 9*time.Second),
	}
	if _, err := mirror.Apply(noon.Add(10*time.Second), m); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "membership since, reported with a delay", mirror.Snapshot().Membership.Since, noon.Add(-time.Hour))
	checkEqual(t, "membership synced at", mirror.Snapshot().MembershipSyncedAt, noon.Add(10*time.Second))
	m = synced("e", 10, []*wireNode{a})
	m.Status.Membership = &inventoryv1.PartStatus{
		State:  inventoryv1.SyncState_SYNC_STATE_DEGRADED,
		Reason: strings.Repeat("é", 600),
		Age:    durationpb.New(-time.Hour),
	}
	if _, err := mirror.Apply(noon.Add(20*time.Second), m); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "membership synced at, degraded", mirror.Snapshot().MembershipSyncedAt, noon.Add(10*time.Second))
	checkEqual(t, "degraded since, with a negative age", mirror.Snapshot().Membership.Since, noon.Add(20*time.Second))
	checkEqual(t, "length of the reason", len(mirror.Snapshot().Membership.Reason), 1024)

	// A replica that has seen the node for a shorter time does not change when its state began.
	young := proto.Clone(a).(*wireNode)
	young.StateAge = durationpb.New(time.Second)
	mirror.BeginStream()
	if _, err := mirror.Apply(noon.Add(30*time.Second), completeSet("f", 1, young)); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "member since, reported by another replica", mirror.Snapshot().Members[0].Since, noon.Add(-time.Minute))
}

func TestPublishedSetsAreImmutable(t *testing.T) {
	mirror := mirrorOf(t, a, b)
	before := mirror.Snapshot()
	kept := slices.Clone(before.Members)
	applyMessages(t, mirror, synced("e", 11, []*wireNode{a, c}, removed("b"), upserts(c)))
	if !slices.Equal(before.Members, kept) {
		t.Error("a snapshot changed after it was published")
	}
	after := mirror.Snapshot()
	applyMessages(t, mirror, synced("e", 11, []*wireNode{a, c}))
	checkEqual(t, "the same set after a heartbeat", SameSet(mirror.Snapshot().Members, after.Members), true)
	checkEqual(t, "address", memberNamed(after, "c").Address, netip.MustParseAddr("fd00::3"))
}

func TestKeepsTrustedMembersWhileDegraded(t *testing.T) {
	degraded := func(m *message) {
		m.Status.Membership = &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_DEGRADED, Reason: "watch disconnected"}
	}
	trusted := func(mirror *Mirror) (names []string) {
		for _, m := range mirror.Snapshot().TrustedMembers {
			names = append(names, m.Name)
		}
		return names
	}
	mirror := mirrorOf(t, a)
	checkEqual(t, "trusted at first", trusted(mirror), []string{"a"})
	applyMessages(t, mirror, synced("e", 11, []*wireNode{a, b}, upserts(b)), synced("e", 12, []*wireNode{b}, removed("a"), degraded))
	checkEqual(t, "members while degraded", memberLines(mirror.Snapshot()), []string{"b 10.0.0.2"})
	checkEqual(t, "trusted while degraded", trusted(mirror), []string{"a", "b"})
	mirror.BeginStream()
	checkEqual(t, "trusted when the stream has ended", trusted(mirror), []string{"a", "b"})
	applyMessages(t, mirror, &message{Status: sourceStatus(1)})
	checkEqual(t, "trusted before the next stream is synced", trusted(mirror), []string{"a", "b"})
	applyMessages(t, mirror, synced("e", 12, []*wireNode{b}))
	s := mirror.Snapshot()
	checkEqual(t, "trusted when membership is synced again", trusted(mirror), []string{"b"})
	checkEqual(t, "the same set", SameSet(s.TrustedMembers, s.Members), true)
}
