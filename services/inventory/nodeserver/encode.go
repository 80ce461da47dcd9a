package nodeserver

import (
	"slices"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"google.golang.org/protobuf/types/known/durationpb"
)

func entryCount(m *inventoryv1.WatchNodesResponse) int {
	return len(m.GetRemoved()) + len(m.GetUpserts())
}

// buildMessage encodes the part of an update that starts at an offset, which counts removals and
// upserts (rule R3).
func buildMessage(u *feed.Update, offset int, now time.Time) *inventoryv1.WatchNodesResponse {
	chunk := stream.NextChunk(u.Removed, u.Upserts, offset, func(e *feed.Entry) *inventoryv1.Node { return encodeNode(e, now) })
	m := &inventoryv1.WatchNodesResponse{
		Reset_: u.Reset && chunk.First, Status: EncodeStatus(u.Status, now), Removed: chunk.Removed, Upserts: chunk.Upserts,
	}
	if chunk.Last && u.Synced {
		m.Synced = true
		m.Cursor = encodeCursor(u)
		m.Digest = slices.Clone(u.At.Digest[:])
		m.Count = uint32(u.Count)
	}
	return m
}

func encodeCursor(u *feed.Update) *inventoryv1.Cursor {
	return &inventoryv1.Cursor{Epoch: u.At.Epoch, Revision: u.At.Revision}
}

func encodeNode(e *feed.Entry, now time.Time) *inventoryv1.Node {
	n := e.Node
	addresses := make([]string, len(n.Addresses))
	for i, a := range n.Addresses {
		addresses[i] = a.String()
	}
	var ports []*inventoryv1.SourcePort
	for _, p := range n.Ports {
		ports = append(ports, &inventoryv1.SourcePort{Name: p.Name, Protocol: p.Protocol, Port: uint32(p.Number)})
	}
	return &inventoryv1.Node{
		Name: n.Name, Uid: n.UID, Addresses: addresses, Ports: ports,
		State: inventoryv1.NodeState(n.State), StateAge: encodeDuration(now.Sub(n.Since)),
		Zone: n.Zone, Region: n.Region, Hostname: n.Hostname, Labels: n.Labels, Fingerprint: e.Fingerprint[:],
	}
}

// EncodeStatus encodes the status of a set.
func EncodeStatus(s source.Status, now time.Time) *inventoryv1.SourceStatus {
	encoded := &inventoryv1.SourceStatus{
		Membership: encodePart(s.Membership, now), Addresses: encodePart(s.Addresses, now), Observation: s.Observation,
	}
	if s.Observation > 0 {
		encoded.ObservationAge = encodeDuration(now.Sub(s.ObservedAt))
	}
	return encoded
}

// encodePart encodes a part of the status. A part that was never reported is unsynced.
func encodePart(p source.PartStatus, now time.Time) *inventoryv1.PartStatus {
	if p.Sync == 0 {
		return &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_UNSYNCED, Reason: "starting"}
	}
	return &inventoryv1.PartStatus{
		State:  inventoryv1.SyncState(p.Sync),
		Reason: truncate(p.Reason),
		Age:    encodeDuration(now.Sub(p.Since)),
	}
}

// encodeDuration encodes an age. After a clock was set back an age would be negative, which the
// contract does not allow: it becomes 0.
func encodeDuration(d time.Duration) *durationpb.Duration { return durationpb.New(max(d, 0)) }

func truncate(text string) string { return display.Truncate(text, contract.MaxTextLength) }
