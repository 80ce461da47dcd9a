package ionos

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// DefaultBudget is in requests per minute. IONOS does not publish its limits, so the default is
// generous: a listing of 5,000 servers and a LAN takes 7 requests. Confirmations take one listing every
// 5 s, which is 84 requests per minute; ten of them, the maximum, pass without a wait.
const DefaultBudget = 120

// budget limits the requests that are sent per minute, whatever causes them. Its token bucket holds half
// of the budget and refills the other half per minute, so that no interval of one minute exceeds the
// budget. A request that comes too early waits and does not fail. A counter that is reset every minute was
// rejected: around the reset, it would allow twice the budget.
type budget struct {
	limiter     *rate.Limiter
	perMinute   int
	waitSeconds prometheus.Counter
	log         *slog.Logger

	mu        sync.Mutex
	waitUntil time.Time // when the last wait ends
}

func newBudget(perMinute int, waitSeconds prometheus.Counter, log *slog.Logger) *budget {
	halfRate := rate.Limit(float64(perMinute) / 2 / time.Minute.Seconds())
	return &budget{limiter: rate.NewLimiter(halfRate, perMinute/2), perMinute: perMinute, waitSeconds: waitSeconds, log: log}
}

// wait returns when one more request may be sent, or with the error of ctx. It does not use
// rate.Limiter.Wait, which fails immediately if the deadline of ctx is before the reservation.
func (b *budget) wait(ctx context.Context) error {
	startedAt := time.Now()
	reservation := b.limiter.ReserveN(startedAt, 1)
	delay := reservation.DelayFrom(startedAt)
	if delay == 0 {
		return nil
	}
	b.logWait(ctx, startedAt, delay)
	defer func() { b.waitSeconds.Add(time.Since(startedAt).Seconds()) }()
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

// Budget is the state of the request budget.
type Budget struct {
	PerMinute int           // maximum number of requests in any minute
	Free      int           // requests that could be sent without a wait
	Wait      time.Duration // of a request sent now; 0: none
}

// Budget returns the current state of the request budget.
func (c *Client) Budget() Budget {
	free := c.budget.limiter.Tokens()
	b := Budget{PerMinute: c.budget.perMinute, Free: max(int(free), 0)}
	if free < 1 {
		b.Wait = time.Duration((1 - free) / float64(c.budget.limiter.Limit()) * float64(time.Second))
	}
	return b
}

// logWait logs the first wait of an episode, which ends after a minute without waits.
func (b *budget) logWait(ctx context.Context, startedAt time.Time, delay time.Duration) {
	b.mu.Lock()
	newEpisode := startedAt.Sub(b.waitUntil) > time.Minute
	b.waitUntil = startedAt.Add(delay)
	b.mu.Unlock()
	if newEpisode {
		b.log.WarnContext(ctx, "IONOS request budget exhausted; listings are delayed",
			"budget", b.perMinute, "wait", delay)
	}
}
