package nodeclient

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

type (
	message  = inventoryv1.WatchNodesResponse
	wireNode = inventoryv1.Node
)

// node is an upsert as a server sends it; content changes its fingerprint.
func node(name, address string, content ...string) *wireNode {
	n := &wireNode{
		Name: name, Uid: "uid-" + name, Addresses: []string{address},
		State: inventoryv1.NodeState_NODE_STATE_READY, StateAge: durationpb.New(time.Minute),
	}
	sum := sha256.Sum256([]byte(fmt.Sprint(name, address, content)))
	n.Fingerprint = sum[:16]
	return n
}

func sourceStatus(observation uint64) *inventoryv1.SourceStatus {
	part := &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED, Age: durationpb.New(time.Hour)}
	return &inventoryv1.SourceStatus{
		Membership: part, Addresses: part, Observation: observation, ObservationAge: durationpb.New(3 * time.Second),
	}
}

// synced is a message that completes a set of these nodes.
func synced(epoch string, revision uint64, set []*wireNode, alter ...func(*message)) *message {
	m := &message{
		Cursor: &inventoryv1.Cursor{Epoch: epoch, Revision: revision}, Synced: true, Status: sourceStatus(1),
		Count: uint32(len(set)), Digest: digestOf(set),
	}
	for _, f := range alter {
		f(m)
	}
	return m
}

func digestOf(set []*wireNode) []byte {
	d := make([]byte, 16)
	for _, n := range set {
		for i := range d {
			d[i] ^= n.GetFingerprint()[i]
		}
	}
	return d
}

func reset(m *message)                          { m.Reset_ = true }
func upserts(nodes ...*wireNode) func(*message) { return func(m *message) { m.Upserts = nodes } }
func removed(names ...string) func(*message)    { return func(m *message) { m.Removed = names } }
func observed(number uint64) func(*message) {
	return func(m *message) { m.Status = sourceStatus(number) }
}

func completeSet(epoch string, revision uint64, set ...*wireNode) *message {
	return synced(epoch, revision, set, reset, upserts(set...))
}

func memberLines(client *Client) []string {
	all := []string{}
	for _, m := range client.Snapshot().Members {
		all = append(all, m.Name+" "+m.Addresses[0].String())
	}
	return all
}

func checkEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var a, b, c = node("a", "10.0.0.1"), node("b", "10.0.0.2"), node("c", "fd00::3")
