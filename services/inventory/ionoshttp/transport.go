// Package ionoshttp is the HTTP transport under the SDK of the IONOS Cloud API. It does what the SDK cannot
// be configured to do: it reads the token for each request and warns before it expires, limits what a
// response may take, reads the servers of a page one by one, reuses connections and keeps the headers. It
// guarantees that a page is never held in memory as a whole, and that it never logs the token. It does not
// retry or wait, and does not judge whether a listing is complete: ionos does.
package ionoshttp

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Exchange is what a call learns of its request and response beyond what the SDK returns.
type Exchange struct {
	Status int         // 0: no response
	Header http.Header // of the response
	Token  string      // as sent, to redact it in messages
}

type exchangeKey struct{}

// WithExchange returns a context in which the transport fills in the exchange.
func WithExchange(ctx context.Context, x *Exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// Transport sends the requests of the SDK. Base and Limit may be changed before the first request.
type Transport struct {
	Base  http.RoundTripper
	Token TokenSource
	Limit int64 // bytes of a response, decompressed

	metrics   *metrics
	expiryLog *expiryLogger
}

// New returns a transport that registers its metrics, and logs when the token expires.
func New(base http.RoundTripper, token TokenSource, limit int64, registry prometheus.Registerer, log *slog.Logger) *Transport {
	return &Transport{
		Base: base, Token: token, Limit: limit, metrics: newMetrics(registry),
		expiryLog: &expiryLogger{log: log, advice: token.advice()},
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*Exchange)
	if !ok {
		x = new(Exchange)
	}
	token, err := t.Token.Read()
	if err != nil {
		return nil, err
	}
	x.Token = token
	expires, known := ParseExpiry(token)
	t.metrics.setTokenExpiry(expires, known)
	if known {
		t.expiryLog.logExpiry(r.Context(), time.Now(), expires)
	}

	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Del("X-Contract-Number") // the SDK takes it from the environment at each request
	r.Close = false                   // the SDK requests a new TLS handshake at each request

	start := time.Now()
	resp, err := t.Base.RoundTrip(r)
	if err != nil {
		t.metrics.observeRequest("error", time.Since(start))
		return nil, err
	}
	x.Status, x.Header = resp.StatusCode, resp.Header.Clone()
	// If Retry-After is a date, the SDK returns an error and does not close the body.
	resp.Header.Del("Retry-After")
	t.metrics.observeRequest(codeLabel(resp.StatusCode), time.Since(start))
	t.metrics.setRateLimit(resp.Header.Get("X-RateLimit-Remaining"))
	resp.Request = r // the SDK's copy has our context
	resp.Body = limitBody(resp, t.Limit)
	return resp, nil
}

// codeLabel limits the values of the metric's label, whatever a server sends.
func codeLabel(status int) string {
	if http.StatusText(status) == "" {
		return "other"
	}
	return strconv.Itoa(status)
}
