package admin

import (
	"net"

	"github.com/slicefeed/slicefeed/services/internal/eviction"
)

// maxConnsPerListener bounds the connections of a listener. A kubelet and a few scrapers have some each.
// They do not identify themselves, so only their addresses distinguish them.
const maxConnsPerListener = 128 // also in docs/design/limits.md

// limitListener makes room for a new connection by closing the oldest of the source address that has the
// most. Letting new connections wait (netutil.LimitListener) was rejected: idle connections would block
// the kubelet, which would then restart a healthy container.
type limitListener struct {
	net.Listener

	conns *eviction.Set[net.Conn]
}

func newLimitListener(l net.Listener, limit int) *limitListener {
	return &limitListener{l, eviction.NewSet(limit, func(evicted net.Conn) {
		evicted.Close() //nolint:errcheck // its peer sees the connection end
	})}
}

func (l *limitListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &trackedConn{conn, l.conns.Add(eviction.SourceAddr(conn.RemoteAddr()), conn)}, nil
}

// trackedConn removes itself from its listener when it is closed.
type trackedConn struct {
	net.Conn

	slot *eviction.Item[net.Conn]
}

func (c *trackedConn) Close() error {
	c.slot.Remove()
	return c.Conn.Close()
}
