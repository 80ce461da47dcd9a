package ionos

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// exchange is what a call learns of its request and response beyond what the SDK returns.
type exchange struct {
	status     int
	location   string
	token      string         // as sent, to redact it in messages
	retryAfter *time.Duration // the pause that the API requested, if any
}

type exchangeKey struct{}

// transport does what the SDK cannot be configured to do: it reads the token for each request, limits
// responses (see pagereader.go), reuses connections and reads headers.
type transport struct {
	base      http.RoundTripper
	token     tokenSource
	limit     int64
	metrics   *metrics
	expiryLog *expiryLogger
	date      atomic.Pointer[responseDate]
}

// responseDate is the Date header of a response, and when it was received.
type responseDate struct{ serverTime, readAt time.Time }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		x = new(exchange)
	}
	token, err := t.token.read()
	if err != nil {
		return nil, err
	}
	x.token = token
	expires, known := parseExpiry(token)
	t.metrics.setTokenExpiry(expires, known)
	if known {
		t.expiryLog.logExpiry(r.Context(), time.Now(), expires)
	}

	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Del("X-Contract-Number") // the SDK takes it from the environment at each request
	r.Close = false                   // the SDK requests a new TLS handshake at each request

	start := time.Now()
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		t.metrics.observeRequest("error", time.Since(start))
		return nil, err
	}
	x.status, x.location = resp.StatusCode, resp.Header.Get("Location")
	if pause, ok := parseRetryAfter(resp.StatusCode, resp.Header, time.Now()); ok {
		x.retryAfter = &pause
	}
	// If Retry-After is a date, the SDK returns an error and does not close the body.
	resp.Header.Del("Retry-After")
	if serverTime, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		t.date.Store(&responseDate{serverTime, time.Now()})
	}
	t.metrics.observeRequest(codeLabel(resp.StatusCode), time.Since(start))
	t.metrics.setRateLimit(resp.Header.Get("X-RateLimit-Remaining"))
	resp.Request = r // the SDK's copy has our context
	resp.Body = limitBody(resp, t.limit)
	return resp, nil
}

// codeLabel limits the values of the metric's label, whatever a server sends.
func codeLabel(status int) string {
	if http.StatusText(status) == "" {
		return "other"
	}
	return strconv.Itoa(status)
}
