package subscriber

import (
	"encoding/binary"
	"slices"
	"testing"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"google.golang.org/protobuf/proto"
)

// encodeMessages concatenates messages, each with its length in front.
func encodeMessages(messages ...*message) []byte {
	var all []byte
	for _, m := range messages {
		b, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		all = binary.AppendUvarint(all, uint64(len(b)))
		all = append(all, b...)
	}
	return all
}

// FuzzApply sends messages of a malicious inventory: the current set is always a verified one, and a
// protocol violation changes nothing.
func FuzzApply(f *testing.F) {
	start := completeSet("e", 10, a, b)
	f.Add(encodeMessages(start, synced("e", 11, []*wireNode{a, b, c}, upserts(c))))
	f.Add(encodeMessages(start, synced("e", 11, []*wireNode{a}, removed("b")), synced("e", 11, []*wireNode{a})))
	f.Add(encodeMessages(start, &message{Status: sourceStatus(1), Reset_: true, Upserts: []*wireNode{c}}, synced("f", 1, []*wireNode{c})))
	f.Add(encodeMessages(start, synced("e", 9, []*wireNode{a, b})))
	f.Add(encodeMessages(completeSet("e", 1, a, node("z", "10.0.0.1"))))
	f.Add(encodeMessages(completeSet("e", 1, dualStack), synced("e", 2, nil, removed("both"))))
	f.Add([]byte{1, 0xff, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		mirror := NewMirror()
		mirror.BeginStream()
		for len(data) > 0 {
			size, n := binary.Uvarint(data)
			if n <= 0 || size > uint64(len(data)-n) {
				return
			}
			m := new(inventoryv1.WatchNodesResponse)
			if proto.Unmarshal(data[n:n+int(size)], m) != nil {
				return
			}
			data = data[n+int(size):]
			before := mirror.Snapshot()
			synced, err := mirror.Apply(noon, m)
			after := mirror.Snapshot()
			if (err != nil || !synced) && (!SameSet(after.Members, before.Members) || after.Cursor != before.Cursor) {
				t.Fatalf("a message that completed no verified set changed the set: %v", err)
			}
			if err != nil {
				mirror.ClearCursor()
				mirror.BeginStream()
			}
			checkSet(t, mirror)
		}
	})
}

// checkSet checks what the mirror knows of its current set.
func checkSet(t *testing.T, mirror *Mirror) {
	t.Helper()
	var sum contract.Digest
	s, members := mirror.Snapshot(), 0
	for name, n := range mirror.nodes {
		sum.XOR(n.fingerprint)
		members += len(n.members)
		for _, m := range n.members {
			if m.Name != name || !slices.Contains(s.Members, m) {
				t.Fatalf("%q has a member of %q that is not in the set", name, m.Name)
			}
		}
	}
	if s.Nodes != len(mirror.nodes) || len(s.Members) != members {
		t.Fatalf("%d nodes with %d members, want %d with %d", s.Nodes, len(s.Members), len(mirror.nodes), members)
	}
	for i := 1; i < len(s.Members); i++ {
		if byAddress(s.Members[i-1], s.Members[i]) >= 0 {
			t.Fatal("members are not sorted by address, or two have the same one")
		}
	}
	if sum != mirror.digest {
		t.Fatalf("digest %x of %x", mirror.digest, sum)
	}
}
