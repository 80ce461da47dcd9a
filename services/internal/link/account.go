package link

import (
	"sync"

	"golang.org/x/time/rate"
)

// clientUsage is what one client has used up: all that call by one name of the list. It outlives a
// change of the client's grant.
type clientUsage struct {
	calls, streams, bytes *rate.Limiter

	mu          sync.Mutex
	conns       map[*clientConnection]struct{}
	excessCount int // of conns: those that are there to be told that they are too many
}

func newClientUsage() *clientUsage {
	return &clientUsage{
		calls: rate.NewLimiter(callRate, callBurst), streams: rate.NewLimiter(streamRate, streamBurst),
		bytes: rate.NewLimiter(byteRate, byteBurst), conns: map[*clientConnection]struct{}{},
	}
}

// addConnection counts a connection in and reports whether there is room for it. A connection above the limit
// is kept for a while all the same, and each call on it gets RESOURCE_EXHAUSTED: a connection that
// is merely closed tells its client nothing.
func (a *clientUsage) addConnection(c *clientConnection) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.conns)-a.excessCount < maxConns:
	case a.excessCount < maxExcessConns:
		c.overLimit = true
		a.excessCount++
	default:
		return false
	}
	a.conns[c] = struct{}{}
	return true
}

// removeConnection counts a connection out; a connection that was never in, or is out already, changes nothing.
func (a *clientUsage) removeConnection(c *clientConnection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, in := a.conns[c]; !in {
		return
	}
	delete(a.conns, c)
	if c.overLimit {
		a.excessCount--
	}
}

func (a *clientUsage) connectionCount() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns)
}

// closeRevoked closes the connections whose client is not on the list any more.
func (a *clientUsage) closeRevoked() {
	a.mu.Lock()
	var revoked []*clientConnection
	for c := range a.conns {
		if c.currentEntry() == nil {
			revoked = append(revoked, c)
		}
	}
	a.mu.Unlock()
	for _, c := range revoked {
		c.Close() //nolint:errcheck // it is not wanted
	}
}
