package admin

import (
	"net"

	"github.com/slicefeed/slicefeed/services/internal/eviction"
)

// maxConns is how many connections a listener keeps. A kubelet and a few scrapers have some each; all
// of them come without a name, so they are told apart by address alone.
const maxConns = 128 // docs/limits.md says it too

// crowd is a listener that closes a connection to make room for another. To let the newest
// wait (netutil.LimitListener) was rejected: whoever merely holds connections would keep the kubelet
// out, which then restarts what is healthy.
type crowd struct {
	net.Listener

	all *eviction.Set[net.Conn]
}

func newCrowd(l net.Listener, limit int) *crowd {
	return &crowd{l, eviction.NewSet(limit, func(evicted net.Conn) {
		evicted.Close() //nolint:errcheck // whose it was finds out
	})}
}

func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &member{conn, c.all.Add(eviction.Source(conn.RemoteAddr()), conn)}, nil
}

// member is a connection that its crowd is told of when it ends.
type member struct {
	net.Conn

	place *eviction.Kept[net.Conn]
}

func (m *member) Close() error {
	m.place.Remove()
	return m.Conn.Close()
}
