package ionos

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// newBudget limits the requests that are sent per minute, whatever causes them. Its token bucket holds half
// of the budget and refills the other half per minute, so that no interval of one minute exceeds the
// budget. A request that comes too early waits and does not fail. A counter that is reset every minute was
// rejected: around the reset, it would allow twice the budget.
func newBudget(perMinute int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(perMinute)/2/time.Minute.Seconds()), perMinute/2)
}

// acquire returns when the budget allows one more request, or when ctx ends before that.
func (c *Client) acquire(ctx context.Context) error {
	if c.limiter.Tokens() < 1 {
		c.logWait.Do(func() {
			c.log.WarnContext(ctx, "IONOS request budget exhausted; listings are delayed", "budget", c.perMinute)
		})
		defer func(startedAt time.Time) { c.metrics.budgetWait.Add(time.Since(startedAt).Seconds()) }(time.Now())
	}
	return c.limiter.Wait(ctx)
}

// Budget is the state of the request budget.
type Budget struct {
	PerMinute int // maximum number of requests in any minute
	Free      int // requests that could be sent without a wait
}

// Budget returns the current state of the request budget.
func (c *Client) Budget() Budget {
	return Budget{PerMinute: c.perMinute, Free: max(int(c.limiter.Tokens()), 0)}
}
