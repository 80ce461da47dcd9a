package link

import (
	"sync"

	"golang.org/x/time/rate"
)

// account is what one client has used up: all that call by one name of the list. It outlives a
// change of the client's grant.
type account struct {
	calls, streams, bytes *rate.Limiter

	mu     sync.Mutex
	conns  map[*connection]struct{}
	excess int // of conns: those that are there to be told that they are too many
}

func newAccount() *account {
	return &account{
		calls: rate.NewLimiter(callRate, callBurst), streams: rate.NewLimiter(streamRate, streamBurst),
		bytes: rate.NewLimiter(byteRate, byteBurst), conns: map[*connection]struct{}{},
	}
}

// add counts a connection in and reports whether there is room for it. A connection above the limit
// is kept for a while all the same, and each call on it gets RESOURCE_EXHAUSTED: a connection that
// is merely closed tells its client nothing.
func (a *account) add(c *connection) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.conns)-a.excess < maxConns:
	case a.excess < maxExcessConns:
		c.excess = true
		a.excess++
	default:
		return false
	}
	a.conns[c] = struct{}{}
	return true
}

// remove counts a connection out; a connection that was never in, or is out already, changes nothing.
func (a *account) remove(c *connection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, in := a.conns[c]; !in {
		return
	}
	delete(a.conns, c)
	if c.excess {
		a.excess--
	}
}

func (a *account) connections() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns)
}

// closeRevoked closes the connections whose client is not on the list any more.
func (a *account) closeRevoked() {
	a.mu.Lock()
	var revoked []*connection
	for c := range a.conns {
		if c.entry() == nil {
			revoked = append(revoked, c)
		}
	}
	a.mu.Unlock()
	for _, c := range revoked {
		c.Close() //nolint:errcheck // it is not wanted
	}
}
