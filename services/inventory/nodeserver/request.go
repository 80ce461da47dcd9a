package nodeserver

import (
	"context"
	"unicode/utf8"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxListedNames limits the names in one request.
const maxListedNames = 1000

// ResumePosition returns where a request resumes; nil: the client has no set. An error is for the client: the request is
// malformed.
func ResumePosition(req *inventoryv1.WatchNodesRequest) (*feed.Position, error) {
	return stream.ResumePosition(req.GetCursor(), req.GetDigest())
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

// identify returns the caller of a method.
func (s *Server) identify(ctx context.Context) (Client, error) {
	client, ok := s.cfg.Identify(ctx)
	if !ok {
		return Client{}, status.Error(codes.PermissionDenied, "client is not allowed")
	}
	return client, nil
}
