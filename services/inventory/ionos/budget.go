package ionos

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// DefaultBudget is in requests per minute. IONOS does not publish its limits, so the default is
// generous: a listing of 5,000 servers and a LAN takes 7 requests. An anomaly takes a listing every 5 s, which is 84
// requests per minute; ten of them pass without a wait, and then one every 20 s, 21 requests per minute.
const DefaultBudget = 120

// budget limits the requests that are sent per minute, whatever causes them. Its token bucket holds half
// of the budget and refills the other half per minute, so that no interval of one minute exceeds the
// budget. A request that comes too early waits and does not fail. A counter that is reset every minute was
// rejected: around the reset, it would allow twice the budget.
type budget struct {
	*rate.Limiter

	perMinute int
	waited    prometheus.Counter
	log       *slog.Logger
	logWait   rate.Sometimes
}

func newBudget(perMinute int, log *slog.Logger) *budget {
	halfRate := rate.Limit(float64(perMinute) / 2 / time.Minute.Seconds())
	return &budget{
		Limiter: rate.NewLimiter(halfRate, perMinute/2), perMinute: perMinute, log: log,
		logWait: rate.Sometimes{Interval: 10 * time.Minute},
	}
}

// acquire returns when one more request may be sent, or when ctx ends before that.
func (b *budget) acquire(ctx context.Context) error {
	if b.Tokens() < 1 {
		b.logWait.Do(func() {
			b.log.WarnContext(ctx, "IONOS request budget exhausted; listings are delayed", "budget", b.perMinute)
		})
		defer func(startedAt time.Time) { b.waited.Add(time.Since(startedAt).Seconds()) }(time.Now())
	}
	return b.Wait(ctx)
}

// Budget is the state of the request budget.
type Budget struct {
	PerMinute int           // maximum number of requests in any minute
	Free      int           // requests that could be sent without a wait
	Wait      time.Duration // of a request sent now; 0: none
}

// Budget returns the current state of the request budget.
func (c *Client) Budget() Budget {
	free := c.budget.Tokens()
	b := Budget{PerMinute: c.budget.perMinute, Free: max(int(free), 0)}
	if free < 1 {
		b.Wait = time.Duration((1 - free) / float64(c.budget.Limit()) * float64(time.Second))
	}
	return b
}
