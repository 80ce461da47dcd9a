package ionos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// exchange is what a call learns of its response beside what the SDK passes on.
type exchange struct {
	status   int
	location string
	token    string        // as sent, to keep it out of messages
	asked    bool          // the cloud asked us to wait
	wait     time.Duration // for how long
}

type exchangeKey struct{}

// transport stands below the SDK and mends what cannot be configured there: it sets the
// token afresh, bounds the response (see stream.go), keeps connections, and reads the headers.
type transport struct {
	base  http.RoundTripper
	token tokenSource
	limit int64
	m     *metrics
	end   *reminder
	dates *dates
	now   func() time.Time
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
	expires, known := expiry(token)
	t.m.sawToken(expires, known)
	if known {
		t.end.saw(r.Context(), t.now(), expires)
	}

	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Del("X-Contract-Number") // the SDK takes it from the environment, at each request
	r.Close = false                   // the SDK asks for a new TLS handshake at each request

	start := t.now()
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		t.m.done("error", t.now().Sub(start))
		return nil, err
	}
	x.status, x.location = resp.StatusCode, resp.Header.Get("Location")
	x.wait, x.asked = asksToWait(resp.StatusCode, resp.Header, t.now())
	// Of a date in Retry-After the SDK makes an error, and forgets to close the body.
	resp.Header.Del("Retry-After")
	t.dates.read(resp.Header, t.now())
	t.m.done(code(resp.StatusCode), t.now().Sub(start))
	t.m.sawRate(resp.Header.Get("X-RateLimit-Remaining"))
	resp.Request = r // the SDK's own, which has our context
	resp.Body = bound(resp, t.limit)
	return resp, nil
}

// bounded fails, rather than ends, when the body is longer than allowed: a body that
// merely ended there could pass for a whole one.
type bounded struct {
	io.ReadCloser

	left, limit int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the answer is longer than %d bytes", b.limit)
	}
	return n, err
}

// code keeps the metric's label bounded whatever a server invents.
func code(status int) string {
	if http.StatusText(status) == "" {
		return "other"
	}
	return strconv.Itoa(status)
}

// watched returns a context in which the transport notes what it sees.
func watched(ctx context.Context) (context.Context, *exchange) {
	x := new(exchange)
	return context.WithValue(ctx, exchangeKey{}, x), x
}
