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

// endlessConn is a peer that sends as fast as it is read.
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
		a, other := newClientUsage(), newClientUsage()
		var read, fromOther atomic.Int64
		var all []*meteredConn
		open := func(a *clientUsage, read *atomic.Int64) {
			c := newMeteredConn(endlessConn{read: read})
			c.usage = a
			all = append(all, c)
		}
		for range maxConns + maxExcessConns {
			open(a, &read)
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
		most := int64(byteBurst + seconds*byteRate + (maxConns+maxExcessConns)*maxReadBytes) // what each waits for has been read
		if got := read.Load(); got > most || got < byteRate*seconds {
			t.Errorf("%d bytes were read, want at most %d", got, most)
		}
		if got := fromOther.Load(); got < byteRate*seconds {
			t.Errorf("another account was read %d bytes of, want its own rate", got)
		}
		for _, c := range all {
			c.Close() // which ends the waiting
		}
		reading.Wait()
	})
}

func TestHandshakeBytesAreNotCharged(t *testing.T) {
	a := newClientUsage()
	var read atomic.Int64
	c := newMeteredConn(endlessConn{read: &read})
	for range maxHandshakeBytes / maxReadBytes {
		must(c.Read(make([]byte, maxReadBytes)))(t)
	}
	c.usage = a
	if left := a.bytes.Tokens(); left != byteBurst {
		t.Errorf("%v bytes are left of the account's burst, want %d", left, byteBurst)
	}
}

func TestHandshakeByteLimit(t *testing.T) {
	var read atomic.Int64
	c := newMeteredConn(endlessConn{read: &read})
	for range maxHandshakeBytes / maxReadBytes {
		must(c.Read(make([]byte, maxReadBytes)))(t)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, errHandshakeTooLong) {
		t.Errorf("reading goes on: %v", err)
	}
}

// A certificate of 90 KB is less than crypto/tls takes, and more than we do.
func TestRejectsOversizedHandshakes(t *testing.T) {
	r := newTestLink(t, serverCert)
	c := &certBuilder{T: t, ca: r.clientCA, san: writerURI, usages: forClients}
	if _, err := r.dialTLS(t, manyNames(3000)(c)); err == nil {
		t.Error("it is let in")
	}
	r.log.waitFor(t, "more than 24576 bytes")
}
