package stream

import (
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Message is one to be sent, to any number of readers: it is encoded once. Nothing of it may be
// altered any more.
type Message[M any] struct {
	Content *M

	once    sync.Once
	encoded grpc.PreparedMsg
	err     error
}

// send takes the first reader's codec for all of them: there is one, and no compressor.
func (m *Message[M]) send(to grpc.ServerStream) error {
	m.once.Do(func() { m.err = m.encoded.Encode(to, m.Content) })
	if m.err != nil {
		return m.err
	}
	return to.SendMsg(&m.encoded)
}

const (
	// shareFor is how long a message is told to others, too. It may say for how long something has
	// been so: that is by no more than this out of date.
	shareFor = 100 * time.Millisecond

	maxCachedMessages = 256 // messages kept: of as many views, or of readers that were left behind
)

// MessageCache has readers that lack the same share the message that leads them on. Its zero value is
// ready. Messages are kept until one is asked for a moment later, which heartbeats see to.
type MessageCache[K comparable, M any] struct {
	mu        sync.Mutex
	startedAt time.Time
	messages  map[K]*Message[M]
}

// GetOrBuild returns the message that has been made for a key a moment ago, or makes it. The key has to
// tell apart what differs in more than a moment's age.
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
