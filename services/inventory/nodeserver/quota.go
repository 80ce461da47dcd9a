package nodeserver

import (
	"sync"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"golang.org/x/time/rate"
)

// Limits of the observations that one client may request. A well-behaved writer requests some when a
// guard holds a change that a newer observation would release: a few, and then none for the length of a
// window. The inventory makes one complete observation per minute by itself.
const (
	observationBurst  = 2 * inventoryv1.MaxConfirmObservations
	observationRefill = 30 * time.Second // long-term rate
)

// observationQuota limits how many observations each client causes by observe_now. Each one costs a LIST
// of all Nodes and a part of the IONOS request budget, which all clients share. The zero value is ready
// to use.
type observationQuota struct {
	mu      sync.Mutex
	clients map[string]*rate.Limiter // those that are not full
}

// request calls observe for as many of the observations as the client's quota allows, and charges the
// client with those that observe adds. It returns the number that was granted.
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

// limiterFor returns the client's limiter, and deletes those that are full again.
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
