package stream

import (
	"iter"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Message is encoded once and may be sent to any number of subscribers. Its content must not change.
type Message[M any] struct {
	Content *M

	end     int // offset of the next message
	once    sync.Once
	encoded grpc.PreparedMsg
	err     error
}

// send encodes the message with the codec of the first stream. All streams have the same one, and
// none has a compressor.
func (m *Message[M]) send(to grpc.ServerStream) error {
	m.once.Do(func() { m.err = m.encoded.Encode(to, m.Content) })
	if m.err != nil {
		return m.err
	}
	return to.SendMsg(&m.encoded)
}

// Reader is the state of one subscriber: its position, and the status that was sent to it last. It has no queue: it
// looks up the newest state, so that a slow client skips the states in between.
type Reader[T, S, M any] struct {
	feed      *Feed[T, S, M]
	selection *Selection
	interval  time.Duration // goes into the first message, and is 0 afterwards

	from       *Position // where the next update starts; nil: the subscriber has no set
	position   Position  // the target of from once a synced update was sent
	sentStatus S
	next       Update[T, S]
	kind       Kind // of next
	caughtUp   bool // the first update was sent, so a later delta is a change that just happened

	mu       sync.Mutex
	progress progress // Progress reads it
}

// progress is how far a subscriber was updated. Zero: nothing was sent yet.
type progress struct {
	sentAt   time.Time
	synced   bool
	revision uint64
}

// NewReader returns the state of a subscriber that resumes from a position; nil: it has no set. The first message states
// the heartbeat interval.
func (f *Feed[T, S, M]) NewReader(from *Position, selection *Selection, interval time.Duration) *Reader[T, S, M] {
	return &Reader[T, S, M]{feed: f, selection: selection, interval: interval, from: from}
}

// Changed returns a channel that is closed when there is something new to send. Callers take it before they call Next,
// so that they miss no change in between.
func (r *Reader[T, S, M]) Changed() <-chan struct{} {
	_, changed := r.feed.Status()
	return changed
}

// Next returns the messages that take the subscriber from its position to the current state. If it is there already, the
// kind is Heartbeat and the messages are a heartbeat. Each message is built after the previous one was sent, so that a
// large set for a slow client is not held in memory.
func (r *Reader[T, S, M]) Next() (Kind, iter.Seq[*Message[M]]) {
	r.next = r.feed.Since(r.from, r.selection)
	switch {
	case r.next.Reset:
		r.kind = Reset
	case r.next.Size() > 0:
		r.kind = Delta
	case !r.feed.Same(r.next.Status, r.sentStatus, r.selection):
		r.kind = Status
	default:
		r.kind = Heartbeat
		r.advance() // entries that are not selected have changed: that must not push this client out of the window
	}
	return r.kind, r.messages
}

func (r *Reader[T, S, M]) messages(yield func(*Message[M]) bool) {
	for offset := 0; ; {
		m := r.feed.message(&r.next, r.selection, offset, r.interval)
		r.interval = 0
		offset = m.end
		if !yield(m) || offset == r.next.Size() {
			return
		}
	}
}

// advance moves the position to that of the update.
func (r *Reader[T, S, M]) advance() {
	if r.next.Synced {
		r.position = r.next.At // copied: a pointer into the update would retain all of it
		r.from = &r.position
	}
}

// Sent moves the position. It is called after all messages of Next were sent.
func (r *Reader[T, S, M]) Sent() {
	r.advance()
	if r.caughtUp && r.kind == Delta && r.feed.OnDeltaSent != nil {
		r.feed.OnDeltaSent()
	}
	r.mu.Lock()
	r.progress = progress{sentAt: time.Now(), synced: r.next.Synced, revision: r.next.At.Revision}
	r.mu.Unlock()
	r.sentStatus, r.next, r.caughtUp = r.next.Status, Update[T, S]{}, true
}

// Progress returns when a message was last sent, even a heartbeat, and how many changes were not sent yet.
func (r *Reader[T, S, M]) Progress() (sentAt time.Time, lag uint64) {
	r.mu.Lock()
	p := r.progress
	r.mu.Unlock()
	if revision := r.feed.Revision(); p.synced && revision > p.revision {
		lag = revision - p.revision
	}
	return p.sentAt, lag
}
