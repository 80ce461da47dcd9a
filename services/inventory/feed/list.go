package feed

import (
	"cmp"
	"context"
	"slices"
	"time"
	"unicode/utf8"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/page"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxListedNames limits the names in one request.
const maxListedNames = 1000

// ListNodes returns a page of the nodes of a set.
func (s *Server) ListNodes(ctx context.Context, req *inventoryv1.ListNodesRequest) (*inventoryv1.ListNodesResponse, error) {
	client, err := s.cfg.Identify(ctx)
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
	current := set.Snapshot()
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
	entryName := func(e *stream.Entry[*roster.Node]) string { return e.Key }
	nodes, next, err := page.Cut(req, selectNames(current.Upserts, req.GetNames()), entryName,
		func(e *stream.Entry[*roster.Node]) *inventoryv1.Node { return encodeEntry(e, now) })
	if err != nil {
		return nil, err
	}
	return &inventoryv1.ListNodesResponse{
		Cursor:        encodeCursor(current.At),
		Status:        EncodeStatus(current.Status, now),
		Nodes:         nodes,
		NextPageToken: next,
		Digest:        current.At.Digest[:],
	}, nil
}

// checkNames returns an error for the client if a request has too many names, or an invalid one.
func checkNames(names []string) error {
	if n := len(names); n > maxListedNames {
		return status.Errorf(codes.InvalidArgument, "%d names, want %d at most", n, maxListedNames)
	}
	for i, name := range names {
		if name == "" || len(name) > contract.MaxNameLength || !utf8.ValidString(name) {
			return status.Errorf(codes.InvalidArgument, "names[%d] is no node name, want 1 to %d bytes", i, contract.MaxNameLength)
		}
	}
	return nil
}

// selectNames returns the entries with one of the names, or all if there are no names.
func selectNames(all []*stream.Entry[*roster.Node], names []string) []*stream.Entry[*roster.Node] {
	if len(names) == 0 {
		return all
	}
	selected := make(map[string]bool, len(names))
	for _, name := range names {
		selected[name] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(e *stream.Entry[*roster.Node]) bool { return !selected[e.Key] })
}
