package link

import (
	"sync"

	"golang.org/x/time/rate"
)

// clientUsage counts what all connections of one client consume. It outlives changes of the client's
// grant.
type clientUsage struct {
	calls, streams, bytes *rate.Limiter

	mu          sync.Mutex
	conns       map[*clientConnection]struct{}
	excessCount int // number of excess connections in conns
}

func newClientUsage() *clientUsage {
	return &clientUsage{
		calls: rate.NewLimiter(callRate, callBurst), streams: rate.NewLimiter(streamRate, streamBurst),
		bytes: rate.NewLimiter(byteRate, byteBurst), conns: map[*clientConnection]struct{}{},
	}
}

// addConnection adds a connection and reports whether there was room for it. An excess connection is
// kept for a short time, and its calls get RESOURCE_EXHAUSTED: closing it would not show the client
// why.
func (u *clientUsage) addConnection(c *clientConnection) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case len(u.conns)-u.excessCount < maxConns:
	case u.excessCount < maxExcessConns:
		c.excess = true
		u.excessCount++
	default:
		return false
	}
	u.conns[c] = struct{}{}
	return true
}

// removeConnection has no effect on a connection that is not counted.
func (u *clientUsage) removeConnection(c *clientConnection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, counted := u.conns[c]; !counted {
		return
	}
	delete(u.conns, c)
	if c.excess {
		u.excessCount--
	}
}

func (u *clientUsage) connectionCount() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns)
}

// closeRevoked closes the connections of a client that is no longer listed.
func (u *clientUsage) closeRevoked() {
	u.mu.Lock()
	var revoked []*clientConnection
	for c := range u.conns {
		if c.currentEntry() == nil {
			revoked = append(revoked, c)
		}
	}
	u.mu.Unlock()
	for _, c := range revoked {
		c.Close() //nolint:errcheck // the connection is abandoned
	}
}
