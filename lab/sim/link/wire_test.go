package link

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// wire is the network between the halves. What is wrong with it holds for all connections,
// those that are there and those to come.
type wire struct {
	mu    sync.Mutex
	to    *replica // that the name leads to now
	fault fault
	conns map[*conn]struct{}
}

// fault is what is wrong with a wire. The zero value: nothing.
type fault struct {
	cut      bool          // connections end, and none can be made
	swallows string        // "from" or "to" the inventory: bytes vanish, and nobody is told
	delay    time.Duration // of each piece, both ways
	slow     int           // the subscriber reads this much in 100 ms; 0: as fast as it can
}

var errCut = errors.New("the wire is cut")

func (w *wire) dial(ctx context.Context, _ string) (net.Conn, error) {
	w.mu.Lock()
	to, cut := w.to, w.fault.cut
	w.mu.Unlock()
	if cut {
		return nil, errCut
	}
	inner, err := to.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, wire: w, closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = struct{}{}
	return c, nil
}

// lead has the name lead to a replica, for connections to come.
func (w *wire) lead(to *replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
}

func (w *wire) now() fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

// set puts a fault in the place of the present one.
func (w *wire) set(f fault) {
	w.mu.Lock()
	w.fault = f
	w.mu.Unlock()
	if f.cut {
		w.reset()
	}
}

// reset ends all connections, so that either end knows it that can hear.
func (w *wire) reset() {
	w.mu.Lock()
	all := slices.Collect(maps.Keys(w.conns))
	w.mu.Unlock()
	for _, c := range all {
		c.Conn.Close()
	}
}

// whole reports whether nothing is wrong, nor is with any connection still.
func (w *wire) whole() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		if c.deaf || c.mute || c.ended || c.pauses > 0 {
			return false
		}
	}
	return w.fault == fault{}
}

// conn is the subscriber's end of a connection. Once a byte was swallowed it is lost for good,
// as if a router on the way had forgotten it: neither end is told.
type conn struct {
	net.Conn

	wire   *wire
	once   sync.Once
	closed chan struct{}

	// Guarded by the wire's mutex.
	deaf, mute bool // nothing comes through any more, or gets out
	ended      bool // gRPC knows, and takes its time to tell the streams
	pauses     int  // pieces on their way
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		if slow := c.wire.now().slow; slow > 0 {
			p = p[:min(len(p), slow)]
		}
		n, err := c.Conn.Read(p)
		f, lost := c.lose("from", &c.deaf)
		if err != nil {
			c.wire.mu.Lock()
			c.ended = true
			c.wire.mu.Unlock()
		}
		switch {
		case lost && err != nil: // it does not hear of the end either
			<-c.closed
			return 0, net.ErrClosed
		case lost:
			continue
		case f.slow > 0:
			c.pause(100 * time.Millisecond)
		default:
			c.pause(f.delay)
		}
		return n, err
	}
}

func (c *conn) Write(p []byte) (int, error) {
	f, lost := c.lose("to", &c.mute)
	if lost {
		return len(p), nil
	}
	c.pause(f.delay)
	// That nobody takes it is heard by reading. If it were told here first, gRPC would try a
	// stream on this connection again and again meanwhile, without a pause.
	c.Conn.Write(p)
	return len(p), nil
}

func (c *conn) lose(way string, already *bool) (fault, bool) {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	*already = *already || c.wire.fault.swallows == way
	return c.wire.fault, *already
}

func (c *conn) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	under := func(by int) {
		c.wire.mu.Lock()
		defer c.wire.mu.Unlock()
		c.pauses += by
	}
	under(+1)
	defer under(-1)
	select {
	case <-time.After(d):
	case <-c.closed:
	}
}

// Close tells the other end, unless what we say does not get there.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.wire.mu.Lock()
	delete(c.wire.conns, c)
	mute := c.mute || c.wire.fault.swallows == "to"
	c.wire.mu.Unlock()
	if mute {
		return nil
	}
	return c.Conn.Close()
}
