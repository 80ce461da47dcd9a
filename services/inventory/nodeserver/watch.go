package nodeserver

import (
	"iter"
	"sync"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/internal/tracepoint"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// WatchNodes streams the nodes of the client's view.
func (s *Server) WatchNodes(req *inventoryv1.WatchNodesRequest, to grpc.ServerStreamingServer[inventoryv1.WatchNodesResponse]) error {
	if err := req.Validate(); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	client, ok := s.cfg.Identify(to.Context())
	if !ok {
		return errUnknown
	}
	leave, err := s.streams.Admit(client.Name)
	if err != nil {
		return err
	}
	defer leave()
	depth := int(req.GetConfirmObservations())
	s.deepen(depth, +1)
	defer s.deepen(depth, -1)
	if req.GetObserveNow() {
		s.requestObservations(client.Name, max(1, depth))
	}
	store := s.cfg.Stores.Acquire(client.View)
	defer func() { s.cfg.Stores.Release(store, time.Now()) }()
	r := NewReader(store, req, s.streams.Heartbeat)
	r.client, r.since, r.sent, r.alike = client, time.Now(), s.cfg.Sent, &s.alike
	s.enter(r)
	defer s.leave(r)
	return stream.Tell(s.streams, to, r)
}

// requestObservations asks for a series on behalf of a client, as far as its quota goes.
func (s *Server) requestObservations(client string, observations int) {
	if granted := s.quota.request(client, time.Now(), observations, s.cfg.Observer.Doubt); granted < observations {
		s.seldom.Do(func() {
			s.cfg.Log.Warn("client asks for more observations than it may cause", "client", client,
				"requested", observations, "granted", granted)
		})
	}
}

func position(req *inventoryv1.WatchNodesRequest) *feed.Position {
	if req.GetCursor() == nil {
		return nil
	}
	return &feed.Position{
		Epoch: req.GetCursor().GetEpoch(), Revision: req.GetCursor().GetRevision(),
		Digest: feed.Digest(req.GetDigest()), // its length has been validated
	}
}

// Message is one of the stream, shared by all whom it leads on.
type Message = stream.Message[inventoryv1.WatchNodesResponse]

// Reader is one client: the position that it was led to, and what it was told that it is worth.
type Reader struct {
	client Client
	since  time.Time
	sent   func() // see Config

	mu     sync.Mutex
	stands standing // for others to see

	store    *feed.Store
	alike    *stream.Alike[messageKey, inventoryv1.WatchNodesResponse]
	at       *feed.Position // nil: nowhere
	led      feed.Position  // where at points to, once it was told something
	word     roster.Status
	interval time.Duration // to be stated; 0: it has been

	next  feed.Update
	kind  stream.Kind // of next
	going bool        // it has been told all that it lacked when it came
}

// NewReader returns a client that was told nothing yet, but for what its request says that it
// knows. Its first message states the interval of heartbeats.
func NewReader(store *feed.Store, req *inventoryv1.WatchNodesRequest, interval time.Duration) *Reader {
	return &Reader{store: store, alike: &stream.Alike[messageKey, inventoryv1.WatchNodesResponse]{}, at: position(req), interval: interval}
}

// Changed is that of the store.
func (r *Reader) Changed() <-chan struct{} { return r.store.Changed() }

// Next looks up what the client lacks.
func (r *Reader) Next() (stream.Kind, iter.Seq[*Message]) {
	r.next = r.store.Since(r.at)
	r.kind = kindOf(r.next, r.word)
	return r.kind, r.messages
}

func (r *Reader) messages(yield func(*Message) bool) {
	for after := 0; ; {
		m := r.alike.Say(r.messageKey(after), func() *inventoryv1.WatchNodesResponse {
			m := message(&r.next, after, time.Now())
			if r.interval > 0 {
				m.HeartbeatInterval = duration(r.interval)
			}
			return m
		})
		r.interval = 0
		after += size(m.Content)
		if !yield(m) || after == r.next.Size() {
			return
		}
	}
}

// messageKey is everything that a message depends on, except for the ages in it: readers with equal
// keys share one message.
type messageKey struct {
	store    *feed.Store
	change   changeKind
	from     uint64 // the revision that a delta starts from
	at       feed.Position
	word     uint64
	after    int
	interval time.Duration
}

// changeKind tells apart what a revision alone cannot: "nothing changed" and "changed since revision 0".
type changeKind uint8

const (
	noChange changeKind = iota
	deltaChange
	resetChange
)

func (r *Reader) messageKey(after int) messageKey {
	k := messageKey{store: r.store, at: r.next.At, word: r.next.Word, after: after, interval: r.interval}
	switch {
	case r.next.Reset:
		k.change = resetChange
	case !r.next.Empty():
		k.change, k.from = deltaChange, r.at.Revision
	}
	return k
}

// Told leads the client on.
func (r *Reader) Told() {
	if r.next.Synced {
		r.led = r.next.At // not a pointer into the update: that would keep all of it
		r.at = &r.led
	}
	if r.going && r.kind == stream.Delta && r.sent != nil {
		tracepoint.Log(tracepoint.Sent)
		r.sent()
	}
	r.mu.Lock()
	r.stands = standing{at: time.Now(), synced: r.next.Synced, revision: r.next.At.Revision}
	r.mu.Unlock()
	r.word, r.next, r.going = r.next.Status, feed.Update{}, true
}

func kindOf(u feed.Update, word roster.Status) stream.Kind {
	switch {
	case u.Reset:
		return stream.Reset
	case !u.Empty():
		return stream.Delta
	case !feed.SameWord(u.Status, word):
		return stream.Status
	default:
		return stream.Heartbeat
	}
}
