package stream

import (
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// Limits of one message.
const (
	// PayloadBudget is the size of the upserts and removed keys in a message; only a single upsert
	// may be larger. It is far below the limit of rule R3, because a thousand subscribers may receive
	// the complete set at the same time, with several messages in flight for each. A message of this
	// size is one HTTP/2 frame and fits into the pooled 16 KB buffers of grpc. Above 32 KB, grpc
	// would use a buffer of 1 MB.
	PayloadBudget = 16<<10 - 1<<10

	keyOverhead   = 8  // tag and length
	entryOverhead = 36 // tag and length, fingerprint and age
)

const (
	// shareFor is how long a message is shared. Ages in a message are out of date by at most this.
	shareFor = 100 * time.Millisecond

	maxSharedMessages = 256 // enough for this many selections of Services, or positions of slow subscribers
	maxSharedBytes    = maxSharedMessages * PayloadBudget
)

// Feed is a set of entries T with a status S of the publisher, which any number of readers receive as messages M. It is
// safe for concurrent use.
type Feed[T, S, M any] struct {
	FeedConfig[T, S, M]

	mu      sync.Mutex
	set     *Set[T]
	status  S
	version uint64 // of the status
	synced  bool   // readers receive the set, not only the status (rule R8)
	changed chan struct{}
	nothing *Changes[T]

	sharing  sync.Mutex
	since    time.Time
	messages map[messageKey[T]]*Message[M]
	bytes    int // of their entries
}

// FeedConfig describes what a feed publishes. All fields are mandatory unless stated.
type FeedConfig[T, S, M any] struct {
	Encode func(Part[T, S]) *M
	// Same reports whether two statuses differ in nothing but ages for readers of a selection.
	Same func(a, b S, selection *Selection) bool
	// OnDeltaSent is called after a delta was sent to a subscriber that was up to date; nil: not called.
	OnDeltaSent func()
}

// Part is what one message carries of an update.
type Part[T, S any] struct {
	Selection *Selection
	Status    S
	Reset     bool // the first message of a reset
	Upserts   []*Entry[T]
	Removed   []string

	// Synced has the position and the count that the update leads to: in its last message, once there is a set.
	Synced *Changes[T]
	// HeartbeatInterval is 0 except in the first message of a stream.
	HeartbeatInterval time.Duration
}

// NewFeed returns a feed of a set, which only the feed uses from then on.
func NewFeed[T, S, M any](set *Set[T], cfg FeedConfig[T, S, M]) *Feed[T, S, M] {
	return &Feed[T, S, M]{FeedConfig: cfg, set: set, changed: make(chan struct{}), nothing: &Changes[T]{shared: true}}
}

// Publish changes the set and sets the status of the same moment. Readers are woken if either differs in more than ages.
func (f *Feed[T, S, M]) Publish(status S, synced bool, change func(*Set[T])) {
	f.mu.Lock()
	defer f.mu.Unlock()
	revision := f.set.revision
	change(f.set)
	same := f.set.revision == revision && f.synced == synced && f.Same(f.status, status, nil)
	f.status, f.synced = status, synced
	f.version++
	if !same {
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// Status returns the current status, and a channel that is closed at the next change of the set or of the status,
// except for ages.
func (f *Feed[T, S, M]) Status() (S, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status, f.changed
}

// Revision returns the number of changes of the set so far.
func (f *Feed[T, S, M]) Revision() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set.revision
}

// Epoch identifies the set in cursors.
func (f *Feed[T, S, M]) Epoch() string { return f.set.epoch }

// Update takes a reader to the current state.
type Update[T, S any] struct {
	*Changes[T] // none unless Synced, or from Snapshot

	Status  S
	Synced  bool
	version uint64
}

// Since returns the update from a position; nil: of a reader without a set.
func (f *Feed[T, S, M]) Since(from *Position, selection *Selection) Update[T, S] {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := Update[T, S]{f.nothing, f.status, f.synced, f.version}
	if f.synced {
		u.Changes = f.set.Since(from, selection)
	}
	return u
}

// Snapshot returns the complete set, even if readers do not receive it yet.
func (f *Feed[T, S, M]) Snapshot() Update[T, S] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Update[T, S]{f.set.Since(nil, nil), f.status, f.synced, f.version}
}

// messageKey has everything that a message depends on, except for ages.
type messageKey[T any] struct {
	changes   *Changes[T]
	version   uint64
	selection string
	offset    int
	interval  time.Duration
}

// message returns the message that starts at an offset of an update, counted in entries. Readers at the same position
// share it.
func (f *Feed[T, S, M]) message(u *Update[T, S], selection *Selection, offset int, interval time.Duration) *Message[M] {
	key := messageKey[T]{u.Changes, u.version, selection.cacheKey(), offset, interval}
	f.sharing.Lock()
	defer f.sharing.Unlock()
	if now := time.Now(); f.messages == nil || now.Sub(f.since) >= shareFor {
		f.since, f.messages, f.bytes = now, map[messageKey[T]]*Message[M]{}, 0
	}
	m := f.messages[key]
	if m == nil {
		part := Part[T, S]{Selection: selection, Status: u.Status, Reset: u.Reset && offset == 0, HeartbeatInterval: interval}
		var size int
		part.Removed, part.Upserts, size = u.chunk(offset)
		end := offset + len(part.Removed) + len(part.Upserts)
		if u.Synced && end == u.Size() {
			part.Synced = u.Changes
		}
		m = &Message[M]{Content: f.Encode(part), end: end}
		if f.bytes += size; u.shared && len(f.messages) < maxSharedMessages && f.bytes <= maxSharedBytes {
			f.messages[key] = m
		}
	}
	return m
}

// chunk returns what one message carries from an offset on, and its size. Removed keys come before upserts (rule R3).
func (d *Changes[T]) chunk(offset int) (removed []string, upserts []*Entry[T], size int) {
	removed, upserts = d.Removed[min(offset, len(d.Removed)):], d.Upserts[max(offset-len(d.Removed), 0):]
	fits := func(bytes int) bool {
		if size > 0 && size+bytes > PayloadBudget {
			return false
		}
		size += bytes
		return true
	}
	n := 0
	for n < min(len(removed), contract.MaxChunk) && fits(keyOverhead+len(removed[n])) {
		n++
	}
	if n < len(removed) {
		return removed[:n], nil, size
	}
	for n = 0; n < min(len(upserts), contract.MaxChunk) && fits(entryOverhead+upserts[n].size); {
		n++
	}
	return removed, upserts[:n], size
}
