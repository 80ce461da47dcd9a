package link

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// endlessConn is a peer that sends as fast as the server reads.
type endlessConn struct {
	net.Conn

	read *atomic.Int64
}

func (e endlessConn) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	return len(p), nil
}

func (e endlessConn) Close() error { return nil }

func TestConnectionsOfClientShareByteRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limits{streams: fewStreams}
		usage, other := l.newClientUsage(), l.newClientUsage()
		var read, fromOther atomic.Int64
		var all []*meteredConn
		open := func(u *clientUsage, read *atomic.Int64) {
			c := newMeteredConn(endlessConn{read: read})
			c.usage = u
			all = append(all, c)
		}
		for range MaxConns + maxExcessConns {
			open(usage, &read)
		}
		open(other, &fromOther)
		var reading sync.WaitGroup
		for _, c := range all {
			reading.Go(func() {
				b := make([]byte, 64<<10)
				for {
					if _, err := c.Read(b); err != nil {
						if !errors.Is(err, net.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		const seconds = 60
		time.Sleep(seconds * time.Second)
		maxBytes := int64(
			byteBurst + seconds*byteRate + (MaxConns+maxExcessConns)*maxReadBytes,
		) // each connection has read the bytes that it waits for
		if got := read.Load(); got > maxBytes || got < byteRate*seconds {
			t.Errorf("%d bytes were read, want at most %d", got, maxBytes)
		}
		if got := fromOther.Load(); got < byteRate*seconds {
			t.Errorf("%d bytes were read from another client, want its own rate", got)
		}
		for _, c := range all {
			c.Close() // ends waiting reads
		}
		reading.Wait()
	})
}

func TestHandshakeBytesAreNotCharged(t *testing.T) {
	usage := (&limits{streams: fewStreams}).newClientUsage()
	var read atomic.Int64
	c := newMeteredConn(endlessConn{read: &read})
	for range maxHandshakeBytes / maxReadBytes {
		must(c.Read(make([]byte, maxReadBytes)))(t)
	}
	c.usage = usage
	if left := usage.bytes.Tokens(); left != byteBurst {
		t.Errorf("%v bytes left of the client's burst, want %d", left, byteBurst)
	}
}

func TestHandshakeByteLimit(t *testing.T) {
	var read atomic.Int64
	c := newMeteredConn(endlessConn{read: &read})
	for range maxHandshakeBytes / maxReadBytes {
		must(c.Read(make([]byte, maxReadBytes)))(t)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, errHandshakeTooLong) {
		t.Errorf("got %v, want %v", err, errHandshakeTooLong)
	}
}

// A certificate of 90 KB is below the limit of crypto/tls and above the limit of this package.
func TestRejectsOversizedHandshakes(t *testing.T) {
	r := newTestLink(t, serverCert)
	c := &certBuilder{T: t, ca: r.clientCA, san: writerURI, usages: forClients}
	if _, err := r.dialTLS(t, manyNames(3000)(c)); err == nil {
		t.Error("connection accepted")
	}
	r.log.waitFor(t, "exceeds 24576 bytes")
}
