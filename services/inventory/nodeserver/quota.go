package nodeserver

import (
	"sync"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"golang.org/x/time/rate"
)

// What one client may have observed on its own behalf. An honest writer asks when a guard holds
// something back that a newer observation would release: a few observations, and then none for
// the length of a window. A complete one is there once a minute anyway.
const (
	observationBurst  = 2 * inventoryv1.MaxConfirmObservations
	observationRefill = 30 * time.Second // one more, in the long run
)

// observationQuota bounds how many observations each client causes by observe_now: they cost a LIST
// of all Nodes and a part of the cloud's budget, which all clients share. The zero value is ready.
type observationQuota struct {
	mu      sync.Mutex
	clients map[string]*rate.Limiter // those that have used up some of theirs
}

// request has observe asked for as many observations as the client has left, and charges it with
// those that this adds to what is under way already. It returns how many were asked for.
func (q *observationQuota) request(client string, now time.Time, observations int, observe func(int) (added int)) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	limiter := q.limiterFor(client, now)
	granted := min(observations, int(limiter.TokensAt(now)))
	if granted <= 0 {
		return 0
	}
	limiter.AllowN(now, min(observe(granted), int(limiter.TokensAt(now))))
	return granted
}

// limiterFor returns the client's, and forgets those that are full again.
func (q *observationQuota) limiterFor(client string, now time.Time) *rate.Limiter {
	for name, l := range q.clients {
		if name != client && l.TokensAt(now) >= observationBurst {
			delete(q.clients, name)
		}
	}
	l := q.clients[client]
	if l == nil {
		if q.clients == nil {
			q.clients = map[string]*rate.Limiter{}
		}
		l = rate.NewLimiter(rate.Every(observationRefill), observationBurst)
		q.clients[client] = l
	}
	return l
}
