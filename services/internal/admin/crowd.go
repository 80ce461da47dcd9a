package admin

import (
	"net"

	"github.com/slicefeed/slicefeed/services/internal/eviction"
)

// maxConnsPerListener is how many connections a listener keeps. A kubelet and a few scrapers have some each; all
// of them come without a name, so they are told apart by address alone.
const maxConnsPerListener = 128 // docs/limits.md says it too

// limitListener is a listener that closes a connection to make room for another. To let the newest
// wait (netutil.LimitListener) was rejected: whoever merely holds connections would keep the kubelet
// out, which then restarts what is healthy.
type limitListener struct {
	net.Listener

	conns *eviction.Set[net.Conn]
}

func newLimitListener(l net.Listener, limit int) *limitListener {
	return &limitListener{l, eviction.NewSet(limit, func(evicted net.Conn) {
		evicted.Close() //nolint:errcheck // whose it was finds out
	})}
}

func (c *limitListener) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &trackedConn{conn, c.conns.Add(eviction.SourceAddr(conn.RemoteAddr()), conn)}, nil
}

// trackedConn is a connection that its crowd is told of when it ends.
type trackedConn struct {
	net.Conn

	slot *eviction.Item[net.Conn]
}

func (m *trackedConn) Close() error {
	m.slot.Remove()
	return m.Conn.Close()
}
