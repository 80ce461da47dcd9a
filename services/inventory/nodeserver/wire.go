package nodeserver

import (
	"iter"
	"strings"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// budget is what upserts and removed names may take of a message, unless a single node takes
// more: far below the limit of rule R3, since a thousand subscribers may be told the whole
// set at once, and each may have a few messages under way. A message is one frame of HTTP/2
// then, and fits grpc's pooled buffers of 16 KB; one that did not fit those of 32 KB would
// take a buffer of 1 MB.
const budget = 16<<10 - 1<<10

// messages cuts an update into messages (rule R3). Each is made when the one before is
// sent, so that a slow reader of a large set does not hold it twice.
func messages(u feed.Update, now func() time.Time) iter.Seq[*inventoryv1.WatchNodesResponse] {
	return func(yield func(*inventoryv1.WatchNodesResponse) bool) {
		removed, upserts := u.Removed, u.Upserts
		for reset := u.Reset; ; reset = false {
			t := now()
			m := &inventoryv1.WatchNodesResponse{Reset_: reset, Status: wireStatus(u.Status, t)}
			size := 0
			n := 0
			for n < len(removed) && n < inventoryv1.MaxChunk && size < budget-inventoryv1.MaxNameLength-8 {
				size += len(removed[n]) + 8 // tag and length
				n++
			}
			m.Removed, removed = removed[:n], removed[n:]
			for len(upserts) > 0 && len(m.GetUpserts()) < inventoryv1.MaxChunk {
				node := wireNode(upserts[0], t)
				more := proto.Size(node) + 8
				if size+more > budget && size > 0 {
					break
				}
				size += more
				m.Upserts, upserts = append(m.GetUpserts(), node), upserts[1:]
			}
			last := len(removed)+len(upserts) == 0
			if last && u.Synced {
				m.Synced = true
				m.Cursor = &inventoryv1.Cursor{Epoch: u.At.Epoch, Revision: u.At.Revision}
				m.Digest = u.At.Digest[:]
				m.Count = uint32(u.Count)
			}
			if !yield(m) || last {
				return
			}
		}
	}
}

func wireNode(e *feed.Entry, now time.Time) *inventoryv1.Node {
	n := e.Node
	addresses := make([]string, len(n.Addresses))
	for i, a := range n.Addresses {
		addresses[i] = a.String()
	}
	return &inventoryv1.Node{
		Name: n.Name, Uid: n.UID, Addresses: addresses,
		State: inventoryv1.NodeState(n.State), StateAge: duration(now.Sub(n.Since)),
		Zone: n.Zone, Region: n.Region, Labels: e.Labels, Fingerprint: e.Fingerprint[:],
	}
}

func wireStatus(s roster.Status, now time.Time) *inventoryv1.SourceStatus {
	w := &inventoryv1.SourceStatus{
		Membership: wirePart(s.Membership, now), Addresses: wirePart(s.Addresses, now), Observation: s.Observation,
	}
	if s.Observation > 0 {
		w.ObservationAge = duration(now.Sub(s.ObservedAt))
	}
	for _, p := range s.Ports[:min(len(s.Ports), inventoryv1.MaxSourcePorts)] {
		w.Ports = append(w.Ports, &inventoryv1.SourcePort{Name: p.Name, Protocol: p.Protocol, Port: uint32(p.Number)})
	}
	return w
}

// wirePart tells a part. One that nobody has spoken of yet has never been complete.
func wirePart(p roster.Part, now time.Time) *inventoryv1.PartStatus {
	if p.Sync == 0 {
		return &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_UNSYNCED, Reason: "starting"}
	}
	reason := p.Reason
	if len(reason) > inventoryv1.MaxReasonLength {
		reason = reason[:inventoryv1.MaxReasonLength]
	}
	return &inventoryv1.PartStatus{
		State: inventoryv1.SyncState(p.Sync), Reason: strings.ToValidUTF8(reason, ""), Age: duration(now.Sub(p.Since)),
	}
}

// duration is a duration on the wire, where none is negative.
func duration(d time.Duration) *durationpb.Duration { return durationpb.New(max(d, 0)) }
