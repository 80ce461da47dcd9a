package nodeserver

import (
	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// SetConfig is what a server publishes as one set. All fields are mandatory unless stated.
type SetConfig struct {
	Service     string // the exported Service that has these endpoints, as namespace/name; empty: the server has one set
	Nodes       *feed.Set
	OnDeltaSent func() // called after a delta was sent to a subscriber that was up to date; nil: not called
}

// Set has the nodes of one source. All clients that may read it see the same.
type Set struct {
	SetConfig

	messageCache stream.MessageCache[messageKey, inventoryv1.WatchNodesResponse]
}

// NewSet returns a set for one server.
func NewSet(cfg SetConfig) *Set { return &Set{SetConfig: cfg} }

// Sets finds the set of a request.
type Sets interface {
	// Acquire returns the set that a request of a client names, for the duration of one call. Its error is for the
	// client.
	Acquire(client Client, service string) (set *Set, release func(), err error)
	// Ready reports whether calls can be served, and returns a channel that is closed when that may have changed.
	Ready() (bool, <-chan struct{})
}

// OnlySet returns the sets of a server that publishes one, which is ready after its first complete observation.
func OnlySet(set *Set) Sets { return onlySet{set} }

type onlySet struct{ set *Set }

func (s onlySet) Acquire(_ Client, service string) (set *Set, release func(), err error) {
	if service != "" {
		return nil, nil, status.Error(codes.FailedPrecondition, "this inventory exports no Services, want a request without service")
	}
	return s.set, func() {}, nil
}

func (s onlySet) Ready() (bool, <-chan struct{}) {
	current, changed := s.set.Nodes.Status()
	return current.Observation > 0, changed
}
