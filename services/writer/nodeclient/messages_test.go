package nodeclient

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"

	"github.com/slicefeed/slicefeed/services/writer/subscriber/subscribertest"
)

type (
	message  = subscribertest.Message
	wireNode = inventoryv1.Node
)

var (
	node, synced, completeSet, sourceStatus = subscribertest.Node, subscribertest.Synced, subscribertest.CompleteSet, subscribertest.SourceStatus
	upserts, removed, observed              = subscribertest.Upserts, subscribertest.Removed, subscribertest.Observed
)

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
