package ionos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// exchange is what a call learns of its request and response beyond what the SDK returns.
type exchange struct {
	status        int
	location      string
	token         string        // as sent, to redact it in messages
	hasRetryAfter bool          // the API requested a pause
	retryAfter    time.Duration // length of the pause
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
	clock     *serverClock
	now       func() time.Time
}

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
		t.expiryLog.logExpiry(r.Context(), t.now(), expires)
	}

	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Del("X-Contract-Number") // the SDK takes it from the environment at each request
	r.Close = false                   // the SDK requests a new TLS handshake at each request

	start := t.now()
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		t.metrics.observeRequest("error", t.now().Sub(start))
		return nil, err
	}
	x.status, x.location = resp.StatusCode, resp.Header.Get("Location")
	x.retryAfter, x.hasRetryAfter = parseRetryAfter(resp.StatusCode, resp.Header, t.now())
	// If Retry-After is a date, the SDK returns an error and does not close the body.
	resp.Header.Del("Retry-After")
	t.clock.recordDate(resp.Header, t.now())
	t.metrics.observeRequest(codeLabel(resp.StatusCode), t.now().Sub(start))
	t.metrics.setRateLimit(resp.Header.Get("X-RateLimit-Remaining"))
	resp.Request = r // the SDK's copy has our context
	resp.Body = limitBody(resp, t.limit)
	return resp, nil
}

// limitedBody returns an error if the body is longer than allowed. A body that merely ended at the limit
// could be taken for a complete one, as with io.LimitReader.
type limitedBody struct {
	io.ReadCloser

	remaining, limit int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.remaining+1 {
		p = p[:b.remaining+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.remaining -= int64(n); b.remaining < 0 {
		return 0, fmt.Errorf("response is longer than %d bytes", b.limit)
	}
	return n, err
}

// codeLabel limits the values of the metric's label, whatever a server sends.
func codeLabel(status int) string {
	if http.StatusText(status) == "" {
		return "other"
	}
	return strconv.Itoa(status)
}

// withExchange returns a context in which the transport records the exchange.
func withExchange(ctx context.Context) (context.Context, *exchange) {
	x := new(exchange)
	return context.WithValue(ctx, exchangeKey{}, x), x
}
