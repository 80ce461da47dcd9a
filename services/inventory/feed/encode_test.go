package feed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/protobuf/proto"
)

// nextMessages returns what a reader is sent next.
func nextMessages(r *Reader) (sent []*inventoryv1.WatchNodesResponse) {
	_, messages := r.Next()
	for m := range messages {
		sent = append(sent, m.Content)
	}
	r.Sent()
	return sent
}

// replaceAll returns the messages of a delta, and of a reset, in which other nodes take the place of as many as these.
func replaceAll(status roster.Status, nodes []roster.Change, rename func(i int) string) (delta, reset []*inventoryv1.WatchNodesResponse) {
	s := NewSet("", "epoch")
	var old, removals []roster.Change
	for i := range 2 * len(nodes) {
		old = append(old, roster.Change{Name: rename(i), Node: newNode(rename(i), i, roster.Ready)})
		removals = append(removals, roster.Change{Name: rename(i)})
	}
	s.Publish(status, old)
	s.Publish(status, removals[len(nodes):]) // the set keeps as many changes as it had nodes
	removals = removals[:len(nodes)]
	r := s.NewReader(nil, nil, 0)
	nextMessages(r)
	s.Publish(status, append(removals, nodes...))
	return nextMessages(r), nextMessages(s.NewReader(nil, nil, 0))
}

func TestR3MessagesStayBelowMaxSize(t *testing.T) {
	heavy := map[string]string{}
	for i := range contract.MaxLabels {
		heavy[fmt.Sprintf("%03d/%s", i, strings.Repeat("k", 310))] = strings.Repeat("v", 63)
	}
	status := publishedStatus(1)
	status.Membership = roster.PartStatus{Sync: roster.Degraded, Reason: strings.Repeat("r", 1<<20)}
	changes := nodeChanges(100)
	for _, c := range changes {
		c.Node.Labels = heavy
	}
	delta, reset := replaceAll(status, changes, func(i int) string { return fmt.Sprintf("%s-%d", strings.Repeat("n", 240), i) })
	for messages, isReset := range map[*[]*inventoryv1.WatchNodesResponse]bool{&delta: false, &reset: true} {
		nodes, removed := 0, 0
		for n, m := range *messages {
			if size := proto.Size(m); size > contract.MaxMessageSize {
				t.Errorf("a message of %d bytes", size)
			}
			nodes, removed = nodes+len(m.GetUpserts()), removed+len(m.GetRemoved())
			checkEqual(t, "reset in the first message only", m.GetReset_(), isReset && n == 0)
			checkEqual(t, "synced in the last message only", m.GetSynced(), nodes == 100)
		}
		checkEqual(t, "nodes", nodes, 100)
		checkEqual(t, "removed", removed, map[bool]int{false: 100}[isReset])
		if n := len(*messages); n < 3 {
			t.Errorf("%d messages of ten MiB", n)
		}
	}
}

// Above its small buffers, grpc would allocate a large one for each of a thousand readers.
func TestLargeSetIsSentInSmallMessages(t *testing.T) {
	var changes []roster.Change
	for i := range 2000 {
		name := fmt.Sprintf("worker-%d.a-region.example", i)
		n := newNode(name, i, roster.Ready)
		n.Labels = map[string]string{"topology.kubernetes.io/zone": "zone-a"}
		changes = append(changes, roster.Change{Name: name, Node: n})
	}
	delta, reset := replaceAll(
		publishedStatus(1),
		changes,
		func(i int) string { return fmt.Sprintf("removed-worker-%d.a-region.example", i) },
	)
	for _, messages := range [][]*inventoryv1.WatchNodesResponse{delta, reset} {
		for _, m := range messages {
			if size := proto.Size(m); size > 16<<10 {
				t.Fatalf("a message of %d bytes", size)
			}
		}
		if len(messages) < 10 {
			t.Errorf("2,000 nodes came in %d messages", len(messages))
		}
	}
}

func TestR12StatesMatchProto(t *testing.T) {
	for own, encoded := range map[roster.NodeState]inventoryv1.NodeState{
		roster.Ready: inventoryv1.NodeState_NODE_STATE_READY, roster.Draining: inventoryv1.NodeState_NODE_STATE_DRAINING,
		roster.NotReady: inventoryv1.NodeState_NODE_STATE_NOT_READY,
	} {
		checkEqual(t, own.String(), inventoryv1.NodeState(own), encoded)
	}
	for own, encoded := range map[roster.SyncState]inventoryv1.SyncState{
		roster.Synced: inventoryv1.SyncState_SYNC_STATE_SYNCED, roster.Degraded: inventoryv1.SyncState_SYNC_STATE_DEGRADED,
		roster.Unsynced: inventoryv1.SyncState_SYNC_STATE_UNSYNCED,
	} {
		checkEqual(t, own.String(), inventoryv1.SyncState(own), encoded)
	}
}

func TestNodesListTheirPorts(t *testing.T) {
	node := &roster.Node{Ports: []contract.Port{{Name: "web", Protocol: "TCP", Number: 8080}}}
	got := encodeNode(node, time.Now()).GetPorts()
	if len(got) != 1 || got[0].GetName() != "web" || got[0].GetProtocol() != "TCP" || got[0].GetPort() != 8080 {
		t.Errorf("got %v", got)
	}
}
