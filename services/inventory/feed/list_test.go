package feed

import (
	"strings"
	"testing"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// publishThree publishes red, worker-00000 and worker-00001.
func publishThree(h *harness) {
	apply(h.nodes, append(nodeChanges(2), roster.Change{Name: "red", Node: newNode("red", 9, roster.Ready)}))
	h.nodes.Publish(publishedStatus(1), nil)
}

func nodeNames(nodes []*inventoryv1.Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.GetName())
	}
	return names
}

func TestListNodesReturnsTheSet(t *testing.T) {
	runServer(t, func(h *harness) {
		list := func(client string, req *inventoryv1.ListNodesRequest) (*inventoryv1.ListNodesResponse, error) {
			return h.client.ListNodes(testkit.WithClientName(h.t.Context(), client), req)
		}
		_, err := list("writer", &inventoryv1.ListNodesRequest{})
		checkEqual(t, "before the first publication", status.Code(err), codes.Unavailable)
		_, err = list("unknown", &inventoryv1.ListNodesRequest{})
		checkEqual(t, "an unknown client", status.Code(err), codes.PermissionDenied)

		publishThree(h)
		for _, tt := range []struct {
			name, client string
			req          *inventoryv1.ListNodesRequest
			want         []string
		}{
			{"all", "writer", &inventoryv1.ListNodesRequest{}, []string{"red", "worker-00000", "worker-00001"}},
			{"names", "writer", &inventoryv1.ListNodesRequest{Names: []string{"worker-00001", "cp", "missing"}}, []string{"worker-00001"}},
		} {
			l, err := list(tt.client, tt.req)
			checkEqual(t, tt.name+", error", err, nil)
			checkEqual(t, tt.name, nodeNames(l.GetNodes()), tt.want)
		}

		first, err := list("writer", &inventoryv1.ListNodesRequest{PageSize: 2})
		checkEqual(t, "error", err, nil)
		checkEqual(t, "first page", nodeNames(first.GetNodes()), []string{"red", "worker-00000"})
		second, err := list("writer", &inventoryv1.ListNodesRequest{PageSize: 2, PageToken: first.GetNextPageToken()})
		checkEqual(t, "error", err, nil)
		checkEqual(t, "second page", nodeNames(second.GetNodes()), []string{"worker-00001"})
		checkEqual(t, "token of the last page", second.GetNextPageToken(), "")
		checkEqual(t, "revision of each page", []uint64{first.GetCursor().GetRevision(), second.GetCursor().GetRevision()}, []uint64{3, 3})
		checkEqual(t, "digest of the whole set on each page", string(second.GetDigest()), string(first.GetDigest()))

		for name, req := range map[string]*inventoryv1.ListNodesRequest{
			"an empty name": {Names: []string{""}}, "a long name": {Names: []string{strings.Repeat("x", 254)}},
			"too many names": {Names: make([]string, 1001)}, "a negative page": {PageSize: -1}, "an invalid token": {PageToken: "%"},
		} {
			_, err := list("writer", req)
			checkEqual(t, name, status.Code(err), codes.InvalidArgument)
		}
	})
}
