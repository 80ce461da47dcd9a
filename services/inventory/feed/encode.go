package feed

import (
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/protobuf/types/known/durationpb"
)

// encode encodes one message.
func (s *Set) encode(p stream.Part[*roster.Node, roster.Status]) *inventoryv1.WatchNodesResponse {
	now := time.Now()
	m := &inventoryv1.WatchNodesResponse{
		Reset_: p.Reset, Status: EncodeStatus(p.Status, now), Removed: p.Removed, Upserts: make([]*inventoryv1.Node, len(p.Upserts)),
	}
	for i, e := range p.Upserts {
		m.Upserts[i] = encodeEntry(e, now)
	}
	if p.Synced != nil {
		m.Synced, m.Cursor, m.Digest, m.Count = true, encodeCursor(p.Synced.At), p.Synced.At.Digest[:], uint32(p.Synced.Count)
	}
	if p.HeartbeatInterval > 0 {
		m.HeartbeatInterval, m.Service = durationpb.New(p.HeartbeatInterval), s.service
	}
	return m
}

func encodeCursor(at stream.Position) *inventoryv1.Cursor {
	return &inventoryv1.Cursor{Epoch: at.Epoch, Revision: at.Revision}
}

func encodeEntry(e *stream.Entry[*roster.Node], now time.Time) *inventoryv1.Node {
	n := encodeNode(e.Value, now)
	n.Fingerprint = e.Fingerprint[:]
	return n
}

// encodeNode encodes a node without its fingerprint.
func encodeNode(n *roster.Node, now time.Time) *inventoryv1.Node {
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
		Zone: n.Zone, Region: n.Region, Hostname: n.Hostname, Labels: n.Labels,
	}
}

// EncodeStatus encodes the status of a set.
func EncodeStatus(s roster.Status, now time.Time) *inventoryv1.SourceStatus {
	encoded := &inventoryv1.SourceStatus{
		Membership: encodePart(s.Membership, now), Addresses: encodePart(s.Addresses, now), Observation: s.Observation,
	}
	if s.Observation > 0 {
		encoded.ObservationAge = encodeDuration(now.Sub(s.ObservedAt))
	}
	return encoded
}

// encodePart encodes a part of the status. A part that was never reported is unsynced.
func encodePart(p roster.PartStatus, now time.Time) *inventoryv1.PartStatus {
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
