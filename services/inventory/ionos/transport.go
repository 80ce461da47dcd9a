package ionos

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
)

// transport sends the requests of the SDK. It does what the SDK cannot be configured to do: it reads the token
// for each request and warns before it expires, limits what a response may take, reads the servers of a page
// one by one and reuses connections.
type transport struct {
	base    http.RoundTripper
	token   TokenSource
	limit   int64 // bytes of a response, decompressed
	metrics *metrics
	log     *slog.Logger

	expiryLogged [len(expiryWarnings)]rate.Sometimes
}

// newTransport returns a transport. The limit may be changed before the first request.
func newTransport(base http.RoundTripper, token TokenSource, m *metrics, log *slog.Logger) *transport {
	t := &transport{base: base, token: token, limit: maxResponseBytes, metrics: m, log: log}
	for i := range t.expiryLogged {
		t.expiryLogged[i].Interval = expiryLogInterval
	}
	return t
}

// retryAfterHeader is what RoundTrip renames Retry-After to: if it is a date, the SDK returns an error and does
// not read the body.
const retryAfterHeader = "Slicefeed-Retry-After"

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.token.Read()
	if err != nil {
		return nil, err
	}
	if expires, known := parseExpiry(token); known {
		t.metrics.expiry.WithLabelValues().Set(float64(expires.Unix()))
		t.logExpiry(r.Context(), expires)
	} else {
		t.metrics.expiry.Reset()
	}

	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Del("X-Contract-Number") // the SDK takes it from the environment at each request
	r.Close = false                   // the SDK requests a new TLS handshake at each request

	startedAt := time.Now()
	resp, err := t.base.RoundTrip(r)
	code := "error"
	if err == nil {
		code = cluster.CodeLabel(resp.StatusCode)
	}
	t.metrics.observeRequest(code, time.Since(startedAt))
	if err != nil {
		if strings.Contains(err.Error(), token) {
			err = errors.New(strings.ReplaceAll(err.Error(), token, hiddenToken))
		}
		return nil, err
	}
	t.metrics.setRateLimit(resp.Header.Get("X-RateLimit-Remaining"))
	resp.Header.Set("Location", strings.ReplaceAll(resp.Header.Get("Location"), token, hiddenToken))
	resp.Header.Set(retryAfterHeader, resp.Header.Get("Retry-After"))
	resp.Header.Del("Retry-After")
	body := bufio.NewReaderSize(resp.Body, max(4<<10, 2*len(token)))
	resp.Body = &tokenHider{Closer: resp.Body, body: body, token: []byte(token)}
	resp.Request = r // the SDK's copy has our context
	resp.Body = limitBody(resp, t.limit)
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
