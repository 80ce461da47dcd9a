package preflight

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// maxSkew is what clocks may differ by. Nothing of ours compares two clocks, but tokens and
// certificates do, and the strictest of those who read tokens allow a minute.
const maxSkew = 30 * time.Second

// Clock reads the clock of a server from its answers.
type Clock struct {
	mu     sync.Mutex
	offset time.Duration // of ours
	known  bool
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (t roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// Wrap makes a client's transport tell the clock.
func (c *Clock) Wrap(base http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(r *http.Request) (*http.Response, error) {
		answer, err := base.RoundTrip(r)
		if err == nil {
			c.recordDate(answer.Header.Get("Date"), time.Now())
		}
		return answer, err
	})
}

func (c *Clock) recordDate(header string, now time.Time) {
	at, err := http.ParseTime(header)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset, c.known = at.Sub(now), true
}

// CheckSkew judges how far the server's clock and ours are apart.
func (c *Clock) CheckSkew() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return CheckSkew(c.offset, c.known)
}

// CheckSkew judges how far another clock is ahead of ours.
func CheckSkew(ahead time.Duration, known bool) (string, error) {
	text := "within a second or two of ours"
	if off := ahead.Abs().Round(time.Second); off > 2*time.Second && ahead > 0 {
		text = fmt.Sprintf("%s ahead of ours", off)
	} else if off > 2*time.Second {
		text = fmt.Sprintf("%s behind ours", off)
	}
	switch {
	case !known:
		return "", Warning("its answers bear no date, so clocks cannot be compared")
	case ahead.Abs() > maxSkew:
		return "", fmt.Errorf("%s: tokens and certificates that were just issued will be refused: set both machines' clocks (NTP)", text)
	}
	return text, nil
}
