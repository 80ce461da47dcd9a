package subscriber

import (
	"crypto/sha256"
	"fmt"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

type (
	message  = inventoryv1.WatchNodesResponse
	wireNode = inventoryv1.Node
)

// node returns a node that is READY; content changes its fingerprint.
func node(name, address string, content ...string) *wireNode {
	sum := sha256.Sum256([]byte(fmt.Sprint(name, address, content)))
	return &wireNode{
		Name: name, Uid: "uid-" + name, Addresses: []string{address},
		State: inventoryv1.NodeState_NODE_STATE_READY, StateAge: durationpb.New(time.Minute), Fingerprint: sum[:16],
	}
}

// sourceStatus returns the status of a synced source at an observation.
func sourceStatus(observation uint64) *inventoryv1.SourceStatus {
	part := &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED, Age: durationpb.New(time.Hour)}
	return &inventoryv1.SourceStatus{
		Membership: part, Addresses: part, Observation: observation, ObservationAge: durationpb.New(3 * time.Second),
	}
}

// synced returns a message that completes a set of these nodes.
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

// completeSet returns a reset with these nodes.
func completeSet(epoch string, revision uint64, set ...*wireNode) *message {
	return synced(epoch, revision, set, reset, upserts(set...))
}

// reset makes a message one that starts over.
func reset(m *message) { m.Reset_ = true }

// upserts adds upserts to a message.
func upserts(nodes ...*wireNode) func(*message) {
	return func(m *message) { m.Upserts = nodes }
}

// removed adds removed names to a message.
func removed(names ...string) func(*message) { return func(m *message) { m.Removed = names } }

// observed sets the observation of a message.
func observed(number uint64) func(*message) {
	return func(m *message) { m.Status = sourceStatus(number) }
}

// digestOf returns the digest of a set.
func digestOf(set []*wireNode) []byte {
	digest := make([]byte, 16)
	for _, n := range set {
		for i := range digest {
			digest[i] ^= n.GetFingerprint()[i]
		}
	}
	return digest
}
