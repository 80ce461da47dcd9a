package subscriber

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// minRedial is the shortest time between two connections to one inventory.
const minRedial = time.Second

// errRedial ends an attempt to connect. The stream tries again after the delay of rule R14.
var errRedial = status.Error(codes.Unavailable, "less than a second since the last connection to the inventory was made")

// sharedLink lets many streams use one connection to the inventory. It connects again as rule R14 requires, whatever
// the number of streams: a connection that has failed is replaced by a new one, at most one per second. It is safe for
// concurrent use.
type sharedLink struct {
	connect func() (*grpc.ClientConn, error) // creates a connection, which connects with the first call

	mu       sync.Mutex
	current  *sharedConn // nil: none
	dialedAt time.Time   // of the last one
}

// sharedConn is a connection and the number of its users.
type sharedConn struct {
	*grpc.ClientConn

	users  int
	closed bool
}

func (c *sharedConn) failed() bool {
	state := c.GetState()
	return state == connectivity.TransientFailure || state == connectivity.Shutdown
}

// sharedUse is one stream's use of the shared connection.
type sharedUse struct {
	*sharedConn

	link *sharedLink
}

// dial returns a use of the connection, or of a new one if there is none or it has failed. It does not wait until the
// connection is established.
func (l *sharedLink) dial() (connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil || l.current.failed() {
		if time.Since(l.dialedAt) < minRedial {
			return nil, errRedial
		}
		conn, err := l.connect()
		if err != nil {
			return nil, err
		}
		l.current, l.dialedAt = &sharedConn{ClientConn: conn}, time.Now()
	}
	l.current.users++
	return sharedUse{l.current, l}, nil
}

// Close ends the use. The connection is closed with the last use, but not before another one could be made: a stream
// that ends immediately, as one that is denied does, must not keep others from connecting.
func (u sharedUse) Close() error {
	l, c := u.link, u.sharedConn
	l.mu.Lock()
	c.users--
	wait := minRedial - time.Since(l.dialedAt)
	lingers := c.users == 0 && l.current == c && wait > 0 && !c.failed()
	l.mu.Unlock()
	if lingers {
		time.AfterFunc(wait, func() { _ = l.closeUnused(c) })
		return nil
	}
	return l.closeUnused(c)
}

// closeUnused closes a connection that has no users.
func (l *sharedLink) closeUnused(c *sharedConn) error {
	l.mu.Lock()
	unused := c.users == 0 && !c.closed
	if unused {
		c.closed = true
		if l.current == c {
			l.current = nil
		}
	}
	l.mu.Unlock()
	if !unused {
		return nil
	}
	return c.Close()
}
