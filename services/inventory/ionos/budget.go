package ionos

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// DefaultBudget is in requests a minute. The cloud publishes no numbers, so ours leaves
// room: a listing of 5,000 servers and a LAN is 7 requests, one every 5 s in doubt is 84 a
// minute, and ten in a row, which is the longest series, pass without a wait.
const DefaultBudget = 120

// budget bounds the requests that leave in a minute, whatever asks for them. It holds half
// of the number at most and fills with the other half in a minute, so that in no minute,
// wherever it begins, more than the number leave. Who comes too early waits and does not
// fail. Rejected: a count that starts anew each minute, which lets twice as many through
// around its edge.
type budget struct {
	limiter     *rate.Limiter
	perMinute   int
	waitSeconds prometheus.Counter // seconds
	log         *slog.Logger

	mu        sync.Mutex
	waitUntil time.Time // when the last wait ends
}

func newBudget(perMinute int, waitSeconds prometheus.Counter, log *slog.Logger) *budget {
	halfRate := rate.Limit(float64(perMinute) / 2 / time.Minute.Seconds())
	return &budget{limiter: rate.NewLimiter(halfRate, perMinute/2), perMinute: perMinute, waitSeconds: waitSeconds, log: log}
}

// wait returns when one more request may leave, or with the error of ctx. It reserves by
// hand, since rate.Limiter.Wait fails at once when a deadline is nearer than the turn.
func (b *budget) wait(ctx context.Context) error {
	began := time.Now()
	reservation := b.limiter.ReserveN(began, 1)
	delay := reservation.DelayFrom(began)
	if delay == 0 {
		return nil
	}
	b.logWait(ctx, began, delay)
	defer func() { b.waitSeconds.Add(time.Since(began).Seconds()) }()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		reservation.Cancel()
		return ctx.Err()
	}
}

// Budget is how much of it there is at this moment.
type Budget struct {
	PerMinute int           // the most requests in any minute
	Free      int           // that could leave at once
	Wait      time.Duration // of one that were made now; 0: none
}

// Budget returns what is left of the request budget.
func (c *Client) Budget() Budget {
	free := c.budget.limiter.Tokens()
	b := Budget{PerMinute: c.budget.perMinute, Free: max(int(free), 0)}
	if free < 1 {
		b.Wait = time.Duration((1 - free) / float64(c.budget.limiter.Limit()) * float64(time.Second))
	}
	return b
}

// logWait logs the first wait of an episode, which is over when a minute went by without any.
func (b *budget) logWait(ctx context.Context, began time.Time, delay time.Duration) {
	b.mu.Lock()
	newEpisode := began.Sub(b.waitUntil) > time.Minute
	b.waitUntil = began.Add(delay)
	b.mu.Unlock()
	if newEpisode {
		b.log.WarnContext(ctx, "the request budget of the cloud API is used up, listings take longer until fewer are asked for",
			"budget", b.perMinute, "wait", delay)
	}
}
