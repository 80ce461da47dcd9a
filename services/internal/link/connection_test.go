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

// endless is a peer that sends as fast as it is read.
type endless struct {
	net.Conn

	read *atomic.Int64
}

func (e endless) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	return len(p), nil
}

func (e endless) Close() error { return nil }

func TestAllConnectionsOfAnAccountAreReadAtOneRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := newAccount(), newAccount()
		var read, fromOther atomic.Int64
		var all []*meteredConn
		open := func(a *account, read *atomic.Int64) {
			c := newMeteredConn(endless{read: read})
			c.account = a
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
		most := int64(byteBurst + seconds*byteRate + (maxConns+maxExcessConns)*maxRead) // what each waits for has been read
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

func TestAHandshakeIsNotCharged(t *testing.T) {
	a := newAccount()
	var read atomic.Int64
	c := newMeteredConn(endless{read: &read})
	for range maxHandshakeBytes / maxRead {
		must(c.Read(make([]byte, maxRead)))(t)
	}
	c.account = a
	if left := a.bytes.Tokens(); left != byteBurst {
		t.Errorf("%v bytes are left of the account's burst, want %d", left, byteBurst)
	}
}

func TestAHandshakeEndsAtItsLimitOfBytes(t *testing.T) {
	var read atomic.Int64
	c := newMeteredConn(endless{read: &read})
	for range maxHandshakeBytes / maxRead {
		must(c.Read(make([]byte, maxRead)))(t)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, errLongHandshake) {
		t.Errorf("reading goes on: %v", err)
	}
}

// A certificate of 90 KB is less than crypto/tls takes, and more than we do.
func TestAPeerWhoseHandshakeIsTooLongIsCutOff(t *testing.T) {
	r := newRig(t, goodServer)
	c := &casting{T: t, ca: r.clientCA, san: writerURI, usages: forClients}
	if _, err := r.knock(t, manyNames(3000)(c)); err == nil {
		t.Error("it is let in")
	}
	r.log.await(t, "more than 24576 bytes")
}
