package nodeserver

import (
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"google.golang.org/protobuf/proto"
)

// resetUpdate is a reset to a set of so many nodes.
func resetUpdate(count int) feed.Update {
	u := feed.Update{Synced: true}
	u.Reset, u.Count = true, count
	return u
}

// messagesOf returns an update as messages.
func messagesOf(u feed.Update) iter.Seq[*inventoryv1.WatchNodesResponse] {
	return func(yield func(*inventoryv1.WatchNodesResponse) bool) {
		for offset := 0; ; {
			m := buildMessage(&u, offset, time.Now())
			offset += entryCount(m)
			if !yield(m) || offset == u.Size() {
				return
			}
		}
	}
}

func TestR3MessagesStayBelowMaxSize(t *testing.T) {
	heavy := map[string]string{}
	for i := range contract.MaxLabels {
		heavy[fmt.Sprintf("%03d/%s", i, strings.Repeat("k", 310))] = strings.Repeat("v", 63)
	}
	u := resetUpdate(100)
	u.Status.Membership = source.PartStatus{Sync: source.Degraded, Reason: strings.Repeat("r", 1<<20)}
	for i := range 100 {
		n := newNode(fmt.Sprint(i), i, source.Ready)
		n.Labels = heavy
		u.Upserts = append(u.Upserts, &feed.Entry{Node: n})
		u.Removed = append(u.Removed, fmt.Sprintf("%s-%d", strings.Repeat("n", 240), i))
	}
	nodes, removed, n := 0, 0, 0
	for m := range messagesOf(u) {
		if size := proto.Size(m); size > contract.MaxMessageSize {
			t.Errorf("a message of %d bytes", size)
		}
		nodes, removed, n = nodes+len(m.GetUpserts()), removed+len(m.GetRemoved()), n+1
		checkEqual(t, "reset in the first message only", m.GetReset_(), n == 1)
		checkEqual(t, "synced in the last message only", m.GetSynced(), nodes == 100)
	}
	checkEqual(t, "nodes", nodes, 100)
	checkEqual(t, "removed", removed, 100)
	if n < 3 {
		t.Errorf("%d messages of ten MiB", n)
	}
}

// Above its small buffers, grpc would allocate a large one for each of a thousand readers.
func TestLargeSetIsSentInSmallMessages(t *testing.T) {
	u := resetUpdate(5000)
	for i := range 5000 {
		name := fmt.Sprintf("worker-%d.a-region.example", i)
		n := newNode(name, i, source.Ready)
		n.Labels = map[string]string{"topology.kubernetes.io/zone": "zone-a"}
		u.Upserts = append(u.Upserts, &feed.Entry{Node: n})
		u.Removed = append(u.Removed, "removed-"+name)
	}
	messages := 0
	for m := range messagesOf(u) {
		messages++
		if size := proto.Size(m); size > 16<<10 {
			t.Fatalf("a message of %d bytes", size)
		}
	}
	if messages < 10 {
		t.Errorf("5,000 nodes and as many removals came in %d messages", messages)
	}
}

func TestR12StatesMatchProto(t *testing.T) {
	for own, encoded := range map[source.NodeState]inventoryv1.NodeState{
		source.Ready: inventoryv1.NodeState_NODE_STATE_READY, source.Draining: inventoryv1.NodeState_NODE_STATE_DRAINING,
		source.NotReady: inventoryv1.NodeState_NODE_STATE_NOT_READY,
	} {
		checkEqual(t, own.String(), inventoryv1.NodeState(own), encoded)
	}
	for own, encoded := range map[source.SyncState]inventoryv1.SyncState{
		source.Synced: inventoryv1.SyncState_SYNC_STATE_SYNCED, source.Degraded: inventoryv1.SyncState_SYNC_STATE_DEGRADED,
		source.Unsynced: inventoryv1.SyncState_SYNC_STATE_UNSYNCED,
	} {
		checkEqual(t, own.String(), inventoryv1.SyncState(own), encoded)
	}
}

func TestNodesListTheirPorts(t *testing.T) {
	node := &roster.Node{Ports: []contract.Port{{Name: "web", Protocol: "TCP", Number: 8080}}}
	got := encodeNode(&feed.Entry{Node: node}, time.Now()).GetPorts()
	if len(got) != 1 || got[0].GetName() != "web" || got[0].GetProtocol() != "TCP" || got[0].GetPort() != 8080 {
		t.Errorf("got %v", got)
	}
}
