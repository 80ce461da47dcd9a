package feed

import (
	"slices"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Set has the nodes of one source and the status of its roster. All clients that may read it see the same. It is safe
// for concurrent use.
type Set struct {
	*stream.Feed[*roster.Node, roster.Status, inventoryv1.WatchNodesResponse]

	service string
}

// Reader is the state of one subscriber.
type Reader = stream.Reader[*roster.Node, roster.Status, inventoryv1.WatchNodesResponse]

// minWindow is how many changes a small set keeps: a Service may have many in a moment.
const minWindow = 64

// NewSet returns the empty set of an exported Service, as namespace/name; empty: of a server that has one set. No other
// set may have its epoch, because a cursor does not distinguish two sets of one epoch: it is random, and new at each
// start. It has at most 64 bytes.
func NewSet(service, epoch string) *Set { return newSet(service, epoch, stream.Window) }

func newSet(service, epoch string, window int) *Set {
	s := &Set{service: service}
	nodes := stream.NewSet[*roster.Node](epoch, min(window, minWindow), window)
	s.Feed = stream.NewFeed(nodes, stream.FeedConfig[*roster.Node, roster.Status, inventoryv1.WatchNodesResponse]{
		Encode: s.encode,
		Same:   func(a, b roster.Status, _ *stream.Selection) bool { return sameStatus(a, b) },
	})
	return s
}

// Publish applies changes of the roster, and sets its status of the same moment: the number of an observation is never
// published with an older set. Readers get no nodes before the status is publishable (rule R8).
func (s *Set) Publish(status roster.Status, changes []roster.Change) {
	s.Feed.Publish(status, status.Publishable, func(set *stream.Set[*roster.Node]) {
		if len(changes) == 0 {
			return
		}
		nodes := slices.Clone(set.Group(""))
		for _, c := range changes {
			at, found := stream.Find(nodes, c.Name)
			if found {
				nodes = slices.Delete(nodes, at, at+1)
			}
			if c.Node != nil {
				nodes = slices.Insert(nodes, at, stream.NewEntry("", c.Name, c.Node, encodeNode(c.Node, c.Node.Since)))
			}
		}
		set.Replace("", nodes)
	})
}

// sameStatus reports whether two statuses differ in nothing but ages.
func sameStatus(a, b roster.Status) bool {
	samePart := func(a, b roster.PartStatus) bool { return a.Sync == b.Sync && a.Reason == b.Reason }
	return a.Publishable == b.Publishable && a.Observation == b.Observation &&
		samePart(a.Membership, b.Membership) && samePart(a.Addresses, b.Addresses)
}

// Sets are what a server publishes.
type Sets interface {
	// Acquire returns the set that a request of a client names, for the duration of one call. Its error is for the
	// client.
	Acquire(client Client, service string) (set *Set, release func(), err error)
	// Ready reports whether calls can be served, and returns a channel that is closed when that may have changed.
	Ready() (bool, <-chan struct{})
	// Revision returns the number of changes so far.
	Revision() uint64
}

// Acquire implements Sets, for a server that has this set only.
func (s *Set) Acquire(_ Client, service string) (set *Set, release func(), err error) {
	if service != "" {
		return nil, nil, status.Error(codes.FailedPrecondition, "this inventory exports no Services, want a request without service")
	}
	return s, func() {}, nil
}

// Ready implements Sets: a set is ready after its first complete observation.
func (s *Set) Ready() (bool, <-chan struct{}) {
	current, changed := s.Status()
	return current.Observation > 0, changed
}
