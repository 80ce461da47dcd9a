package admin

import (
	"container/list"
	"net"
	"sync"
)

// maxConns is how many connections a listener keeps. A kubelet and a few scrapers have some each; all
// of them come without a name, so nobody can be counted apart.
const maxConns = 128 // docs/limits.md says it too

// crowd is a listener that closes its oldest connection to make room for another. To let the newest
// wait (netutil.LimitListener) was rejected: whoever merely holds connections would keep the kubelet
// out, which then restarts what is healthy.
type crowd struct {
	net.Listener

	most int

	mu  sync.Mutex
	all list.List // net.Conn, the oldest first
}

func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all.Len() >= c.most {
		c.all.Remove(c.all.Front()).(net.Conn).Close() //nolint:errcheck // whose it was finds out
	}
	place := c.all.PushBack(conn)
	return &member{Conn: conn, leave: func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all.Remove(place)
	}}, nil
}

// member is a connection that its crowd is told of when it ends.
type member struct {
	net.Conn

	leave func()
}

func (m *member) Close() error {
	m.leave()
	return m.Conn.Close()
}
