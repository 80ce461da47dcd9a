package stream

import (
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Message is encoded once and may be sent to any number of subscribers. Its content must not change.
type Message[M any] struct {
	Content *M

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

const (
	// shareFor is how long a message is shared. Ages in a message are out of date by at most this.
	shareFor = 100 * time.Millisecond

	maxCachedMessages = 256 // enough for this many selections of Services, or positions of slow subscribers
)

// MessageCache lets subscribers at the same position share one message. The zero value is ready to
// use. Messages are dropped by the first call after shareFor; heartbeats make sure that it comes.
type MessageCache[K comparable, M any] struct {
	mu        sync.Mutex
	startedAt time.Time
	messages  map[K]*Message[M]
}

// GetOrBuild returns the recent message of a key, or builds it. Keys may be equal only if their
// messages differ in nothing but ages.
func (c *MessageCache[K, M]) GetOrBuild(key K, build func() *M) *Message[M] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.messages == nil || now.Sub(c.startedAt) >= shareFor {
		c.startedAt, c.messages = now, map[K]*Message[M]{}
	}
	m := c.messages[key]
	if m == nil {
		m = &Message[M]{Content: build()}
		if len(c.messages) < maxCachedMessages {
			c.messages[key] = m
		}
	}
	return m
}
