package apifault

import (
	"net"
	"sync"
)

// gatedListener holds up what comes and goes over its connections while there is a black
// hole. It stands below TLS, so that HTTP/2's own pings are not answered either.
type gatedListener struct {
	net.Listener

	proxy *Proxy
}

// Accept implements net.Listener.
func (l gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatedConn{Conn: c, proxy: l.proxy, closed: make(chan struct{})}, nil
}

type gatedConn struct {
	net.Conn

	proxy  *Proxy
	closed chan struct{}
	once   sync.Once
}

// Read holds up also what had arrived before the black hole and was not read yet.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && !c.pass() {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if !c.pass() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *gatedConn) pass() bool {
	return c.proxy.wait(func() bool { return c.proxy.fault.BlackHole }, c.closed)
}
