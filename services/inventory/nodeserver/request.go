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

// Limits of the names in one request.
const (
	maxListedNames    = 1000
	maxExplainedNames = 100
)

// WatchRequest is a valid request for a stream.
type WatchRequest struct {
	From          *feed.Position // nil: the client has no set
	Confirmations int            // observations that the client needs to confirm an anomaly; 0: once
}

// ParseWatchRequest returns what a request says. An error is for the client: the request is malformed.
func ParseWatchRequest(req *inventoryv1.WatchNodesRequest) (WatchRequest, error) {
	from, err := stream.ResumePosition(req.GetCursor(), req.GetDigest())
	if err != nil {
		return WatchRequest{}, err
	}
	confirmations, err := parseObservations("confirm_observations", req.GetConfirmObservations())
	return WatchRequest{From: from, Confirmations: confirmations}, err
}

func parseObservations(field string, n uint32) (int, error) {
	if n > contract.MaxConfirmObservations {
		return 0, status.Errorf(codes.InvalidArgument, "%s is %d, want at most %d", field, n, contract.MaxConfirmObservations)
	}
	return int(n), nil
}

// checkNames returns an error for the client if a request has too few or too many names, or an invalid one.
func checkNames(names []string, minNames, maxNames int) error {
	if n := len(names); n < minNames || n > maxNames {
		return status.Errorf(codes.InvalidArgument, "%d names, want %d to %d", n, minNames, maxNames)
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
