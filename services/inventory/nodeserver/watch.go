package nodeserver

import (
	"iter"
	"sync"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"google.golang.org/grpc"
)

// WatchNodes streams the nodes of a set.
func (s *Server) WatchNodes(req *inventoryv1.WatchNodesRequest, to grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]) error {
	client, err := s.identify(to.Context())
	if err != nil {
		return err
	}
	from, err := ResumePosition(req)
	if err != nil {
		return err
	}
	end, err := s.streams.Admit(client.Name)
	if err != nil {
		return err
	}
	defer end()
	set, release, err := s.cfg.Sets.Acquire(client, req.GetService())
	if err != nil {
		return err
	}
	defer release()
	r := NewReader(set, from, stream.HeartbeatInterval)
	r.client, r.since = client, time.Now()
	s.register(r)
	defer s.unregister(r)
	return stream.Serve(s.streams, to, r)
}

// Message is a message of the stream, shared by all subscribers at the same position.
type Message = stream.Message[inventoryv1.WatchNodesResponse]

// Reader is the state of one subscriber: its position, and the status that was sent to it last. It
// implements stream.Reader.
type Reader struct {
	client Client
	set    *Set // whose messages it shares
	since  time.Time

	mu       sync.Mutex
	progress sendProgress // Subscribers reads it

	from              *feed.Position // where the next update starts; nil: the subscriber has no set
	position          feed.Position  // the target of from once a synced update was sent
	sentStatus        source.Status
	heartbeatInterval time.Duration // goes into the first message, and is 0 afterwards

	next     feed.Update
	kind     stream.Kind // of next
	caughtUp bool        // the first update was sent, so a later delta is a change that just happened
}

// NewReader returns the state of a subscriber that resumes from a position; nil: it has no set. The first
// message states the heartbeat interval.
func NewReader(set *Set, from *feed.Position, interval time.Duration) *Reader {
	return &Reader{set: set, from: from, heartbeatInterval: interval}
}

// Changed returns a channel that is closed at the next change of the set.
func (r *Reader) Changed() <-chan struct{} { return r.set.Nodes.Changed() }

// Next looks up the update that the subscriber needs now.
func (r *Reader) Next() (stream.Kind, iter.Seq[*Message]) {
	r.next = r.set.Nodes.Since(r.from)
	r.kind = kindOf(r.next, r.sentStatus)
	return r.kind, r.buildMessages
}

func (r *Reader) buildMessages(yield func(*Message) bool) {
	for offset := 0; ; {
		m := r.set.messageCache.GetOrBuild(r.newMessageKey(offset), func() *inventoryv1.WatchNodesResponse {
			m := buildMessage(&r.next, offset, time.Now())
			if r.heartbeatInterval > 0 { // the first message
				m.HeartbeatInterval = encodeDuration(r.heartbeatInterval)
				m.Service = r.set.Service
			}
			return m
		})
		r.heartbeatInterval = 0
		offset += entryCount(m.Content)
		if !yield(m) || offset == r.next.Size() {
			return
		}
	}
}

// messageKey has everything that a message depends on, except for ages: readers with equal keys share
// one message.
type messageKey struct {
	change            changeKind
	fromRevision      uint64 // the revision that a delta starts from
	position          feed.Position
	statusVersion     uint64
	offset            int
	heartbeatInterval time.Duration
}

// changeKind distinguishes "nothing changed" from "changed since revision 0", where fromRevision is 0
// in both cases.
type changeKind uint8

const (
	noChange changeKind = iota
	deltaChange
	resetChange
)

func (r *Reader) newMessageKey(offset int) messageKey {
	k := messageKey{
		position:          r.next.At,
		statusVersion:     r.next.StatusVersion,
		offset:            offset,
		heartbeatInterval: r.heartbeatInterval,
	}
	switch {
	case r.next.Reset:
		k.change = resetChange
	case !r.next.Empty():
		k.change, k.fromRevision = deltaChange, r.from.Revision
	}
	return k
}

// Sent moves the position to that of the update.
func (r *Reader) Sent() {
	if r.next.Synced {
		r.position = r.next.At // copied: a pointer into the update would retain all of it
		r.from = &r.position
	}
	if r.caughtUp && r.kind == stream.Delta && r.set.OnDeltaSent != nil {
		tracepoint.Mark(tracepoint.DeltaSent)
		r.set.OnDeltaSent()
	}
	r.mu.Lock()
	r.progress = sendProgress{sentAt: time.Now(), synced: r.next.Synced, revision: r.next.At.Revision}
	r.mu.Unlock()
	r.sentStatus, r.next, r.caughtUp = r.next.Status, feed.Update{}, true
}

func kindOf(u feed.Update, sentStatus source.Status) stream.Kind {
	switch {
	case u.Reset:
		return stream.Reset
	case !u.Empty():
		return stream.Delta
	case !feed.SameStatus(u.Status, sentStatus):
		return stream.Status
	default:
		return stream.Heartbeat
	}
}
