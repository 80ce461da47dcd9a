// Package subscribertest builds messages of a WatchNodes stream as an inventory sends them. It imports only
// the generated types, so that the subscriber's own tests can use it.
package subscribertest

import (
	"crypto/sha256"
	"fmt"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Message is one message of the stream.
type Message = inventoryv1.WatchNodesResponse

// Node returns a node that is READY; content changes its fingerprint.
func Node(name, address string, content ...string) *inventoryv1.Node {
	sum := sha256.Sum256([]byte(fmt.Sprint(name, address, content)))
	return &inventoryv1.Node{
		Name: name, Uid: "uid-" + name, Addresses: []string{address},
		State: inventoryv1.NodeState_NODE_STATE_READY, StateAge: durationpb.New(time.Minute), Fingerprint: sum[:16],
	}
}

// SourceStatus returns the status of a synced source at an observation.
func SourceStatus(observation uint64) *inventoryv1.SourceStatus {
	part := &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED, Age: durationpb.New(time.Hour)}
	return &inventoryv1.SourceStatus{
		Membership: part, Addresses: part, Observation: observation, ObservationAge: durationpb.New(3 * time.Second),
	}
}

// Synced returns a message that completes a set of these nodes.
func Synced(epoch string, revision uint64, set []*inventoryv1.Node, alter ...func(*Message)) *Message {
	m := &Message{
		Cursor: &inventoryv1.Cursor{Epoch: epoch, Revision: revision}, Synced: true, Status: SourceStatus(1),
		Count: uint32(len(set)), Digest: DigestOf(set),
	}
	for _, f := range alter {
		f(m)
	}
	return m
}

// CompleteSet returns a reset with these nodes.
func CompleteSet(epoch string, revision uint64, set ...*inventoryv1.Node) *Message {
	return Synced(epoch, revision, set, Reset, Upserts(set...))
}

// Reset makes a message one that starts over.
func Reset(m *Message) { m.Reset_ = true }

// Upserts adds upserts to a message.
func Upserts(nodes ...*inventoryv1.Node) func(*Message) {
	return func(m *Message) { m.Upserts = nodes }
}

// Removed adds removed names to a message.
func Removed(names ...string) func(*Message) { return func(m *Message) { m.Removed = names } }

// Observed sets the observation of a message.
func Observed(number uint64) func(*Message) {
	return func(m *Message) { m.Status = SourceStatus(number) }
}

// DigestOf returns the digest of a set.
func DigestOf(set []*inventoryv1.Node) []byte {
	digest := make([]byte, 16)
	for _, n := range set {
		for i := range digest {
			digest[i] ^= n.GetFingerprint()[i]
		}
	}
	return digest
}
