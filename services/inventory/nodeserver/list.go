package nodeserver

import (
	"cmp"
	"context"
	"slices"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/page"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ListNodes returns a page of the nodes of a set.
func (s *Server) ListNodes(ctx context.Context, req *inventoryv1.ListNodesRequest) (*inventoryv1.ListNodesResponse, error) {
	client, err := s.identify(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkNames(req.GetNames()); err != nil {
		return nil, err
	}
	set, release, err := s.cfg.Sets.Acquire(client, req.GetService())
	if err != nil {
		return nil, err
	}
	defer release()
	current := set.Nodes.Snapshot()
	now := time.Now()
	switch observed := current.Status.Observation > 0; {
	case !current.Synced && !observed:
		return nil, status.Errorf(
			codes.Unavailable,
			"inventory has published nothing yet: %s",
			cmp.Or(truncate(current.Status.Membership.Reason), "starting"),
		)
	case !current.Synced:
		return &inventoryv1.ListNodesResponse{Status: EncodeStatus(current.Status, now)}, nil
	}
	entryName := func(e *feed.Entry) string { return e.Node.Name }
	nodes, next, err := page.Cut(req, selectNames(current.Upserts, req.GetNames()), entryName,
		func(e *feed.Entry) *inventoryv1.Node { return encodeNode(e, now) })
	if err != nil {
		return nil, err
	}
	return &inventoryv1.ListNodesResponse{
		Cursor: encodeCursor(
			&current,
		),
		Status:        EncodeStatus(current.Status, now),
		Nodes:         nodes,
		NextPageToken: next,
		Digest:        current.At.Digest[:],
	}, nil
}

// selectNames returns the entries with one of the names, or all if there are no names.
func selectNames(all []*feed.Entry, names []string) []*feed.Entry {
	if len(names) == 0 {
		return all
	}
	selected := make(map[string]bool, len(names))
	for _, name := range names {
		selected[name] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(e *feed.Entry) bool { return !selected[e.Node.Name] })
}
