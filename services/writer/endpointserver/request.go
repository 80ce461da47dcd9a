package endpointserver

import (
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
)

// Limits of slicefeed.writer.v1. Lengths are in bytes.
const (
	maxSelectors         = 100 // of one request
	maxNameLength        = 63  // of namespaces, ports, sources and zones
	maxServiceLength     = 77  // of Services: 63, and .serviceimport after the name of a ServiceImport
	maxFeedLength        = 191 // of a source, followed by /namespace/name of a Service that it exports
	maxKeyLength         = 256
	maxAppProtocolLength = 317 // a prefix of 253, a slash and a name of 63
	maxReasonLength      = 128 // of a target's reason
	maxSources           = 64
)

// parseSelectors returns the filter for the services of a request. An error is for the client.
func parseSelectors(selectors []*writerv1.ServiceSelector) (deltaset.Filter, error) {
	if n := len(selectors); n > maxSelectors {
		return nil, status.Errorf(codes.InvalidArgument, "%d services, want at most %d; an empty list selects all", n, maxSelectors)
	}
	names := make([]endpoints.ServiceName, 0, len(selectors))
	for i, s := range selectors {
		if !isName(s.GetNamespace(), maxNameLength) || s.GetService() != "" && !isName(s.GetService(), maxServiceLength) {
			return nil, status.Errorf(
				codes.InvalidArgument,
				"services[%d]: namespace and service have %d and %d bytes, want 1 to %d and at most %d",
				i,
				len(s.GetNamespace()),
				len(s.GetService()),
				maxNameLength,
				maxServiceLength,
			)
		}
		names = append(names, endpoints.ServiceName{Namespace: s.GetNamespace(), Service: s.GetService()})
	}
	return endpoints.SelectServices(names), nil
}

func isName(name string, limit int) bool {
	return name != "" && len(name) <= limit && utf8.ValidString(name)
}
