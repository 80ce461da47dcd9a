package nodeserver

import (
	"context"
	"sync"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"golang.org/x/time/rate"
)

// RequestObservations requests observations for a client, as many as its quota grants.
func (s *Server) RequestObservations(
	ctx context.Context,
	req *inventoryv1.RequestObservationsRequest,
) (*inventoryv1.RequestObservationsResponse, error) {
	client, err := s.identify(ctx)
	if err != nil {
		return nil, err
	}
	requested, err := parseObservations("observations", req.GetObservations())
	if err != nil {
		return nil, err
	}
	set, release, err := s.cfg.Sets.Acquire(client, req.GetService())
	if err != nil {
		return nil, err
	}
	defer release()
	requested = max(requested, 1)
	granted := set.quota.request(client.Name, time.Now(), requested, set.Observer.RequestObservations)
	if granted < requested {
		s.logLimiter.Do(func() {
			s.cfg.Log.Warn("client requests more observations than its quota allows", "client", client.Name,
				"requested", requested, "granted", granted)
		})
	}
	return &inventoryv1.RequestObservationsResponse{Granted: uint32(granted)}, nil
}

// Limits of the observations that one client may request. A correct writer requests a few when a guard
// holds a change that a newer observation would release, and then none until its SHRINK_WINDOW is over.
// The inventory makes one complete observation per minute by itself.
const (
	observationBurst  = 2 * contract.MaxConfirmObservations
	observationRefill = 30 * time.Second // long-term rate
)

// observationQuota limits how many observations each client causes. Each one costs a LIST of all Nodes
// and a part of the IONOS request budget, which all clients share. The zero value is ready to use.
type observationQuota struct {
	mu      sync.Mutex
	clients map[string]*rate.Limiter // by name; clients that used nothing for a while have none
}

// request calls observe with the number of observations that the client's quota grants, and returns
// that number. It charges the client only for those that observe adds: others were requested already.
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

// limiterFor returns the client's limiter, and deletes those of other clients that are full again.
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
