package preflight

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// maxSkew bounds the difference of two clocks. Slicefeed compares no clocks, but tokens and certificates
// have times, and the strictest verifiers of tokens tolerate a minute.
const maxSkew = 30 * time.Second

// Clock reads a server's clock from the Date header of its responses.
type Clock struct {
	mu     sync.Mutex
	offset time.Duration // positive: ahead of this machine's clock
	known  bool
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (t roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// Wrap returns a transport that records the clock from its responses.
func (c *Clock) Wrap(base http.RoundTripper) http.RoundTripper {
	return roundTripFunc(func(r *http.Request) (*http.Response, error) {
		response, err := base.RoundTrip(r)
		if err == nil {
			c.recordDate(response.Header.Get("Date"), time.Now())
		}
		return response, err
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

// CheckSkew compares the server's clock with this machine's.
func (c *Clock) CheckSkew() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return CheckSkew(c.offset, c.known)
}

// CheckSkew checks the offset of another clock from this machine's.
func CheckSkew(offset time.Duration, known bool) (string, error) {
	text := "in sync"
	if skew := offset.Abs().Round(time.Second); skew > 2*time.Second && offset > 0 {
		text = fmt.Sprintf("%s ahead of this machine's", skew)
	} else if skew > 2*time.Second {
		text = fmt.Sprintf("%s behind this machine's", skew)
	}
	switch {
	case !known:
		return "", Warning("no Date header in its responses; the clocks cannot be compared")
	case offset.Abs() > maxSkew:
		return "", fmt.Errorf("%s; tokens and certificates that were just issued are rejected; synchronize both clocks (NTP)", text)
	}
	return text, nil
}
