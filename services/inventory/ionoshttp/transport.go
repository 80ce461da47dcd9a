// Package ionoshttp is the HTTP transport under the SDK of the IONOS Cloud API. It does what the SDK cannot
// be configured to do: it reads the token for each request and warns before it expires, limits what a
// response may take, reads the servers of a page one by one, reuses connections and keeps the headers. It
// guarantees that a page is never held in memory as a whole, and that nothing that it logs or returns
// contains the token. It does not retry or wait, and does not judge whether a listing is complete: ionos does.
package ionoshttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/slicefeed/slicefeed/services/internal/cluster"
)

// Exchange is what a call learns of its request and response beyond what the SDK returns.
type Exchange struct {
	Status int         // 0: no response
	Header http.Header // of the response
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
		if strings.Contains(err.Error(), token) {
			err = errors.New(strings.ReplaceAll(err.Error(), token, hiddenToken))
		}
		return nil, err
	}
	resp.Header.Set("Location", strings.ReplaceAll(resp.Header.Get("Location"), token, hiddenToken))
	body := bufio.NewReaderSize(resp.Body, max(4<<10, 2*len(token)))
	resp.Body = &tokenHider{Closer: resp.Body, body: body, token: []byte(token)}
	x.Status, x.Header = resp.StatusCode, resp.Header.Clone()
	// If Retry-After is a date, the SDK returns an error and does not close the body.
	resp.Header.Del("Retry-After")
	t.metrics.observeRequest(cluster.CodeLabel(resp.StatusCode), time.Since(start))
	t.metrics.setRateLimit(resp.Header.Get("X-RateLimit-Remaining"))
	resp.Request = r // the SDK's copy has our context
	resp.Body = limitBody(resp, t.Limit)
	return resp, nil
}

// hiddenToken replaces the token in what the API returns, before anything quotes the start of it.
const hiddenToken = "<token>"

// tokenHider is a body in which the token is overwritten by asterisks.
type tokenHider struct {
	io.Closer

	body  *bufio.Reader
	token []byte
	err   error // that ended the body
}

func (h *tokenHider) Read(p []byte) (int, error) {
	if h.err == nil {
		_, h.err = h.body.Peek(len(h.token))
	}
	window, _ := h.body.Peek(h.body.Buffered())
	if bytes.Contains(window, h.token) {
		copy(window, bytes.ReplaceAll(window, h.token, bytes.Repeat([]byte("*"), len(h.token))))
	}
	complete := len(window)
	switch {
	case h.err == nil:
		complete -= len(h.token) - 1 // a token may begin there
	case complete == 0:
		return 0, h.err
	}
	return h.body.Read(p[:min(len(p), complete)])
}
