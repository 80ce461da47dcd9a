package ionos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestDoesNotRetry(t *testing.T) {
	for _, status := range []int{429, 500, 502, 503, 504} {
		cfg, j := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { respond(w, status, "{}") }))
		if _, err := newTestClient(t, cfg).List(t.Context()); err == nil {
			t.Errorf("%d: no error", status)
		}
		if n := len(j.all()); n != 1 {
			t.Errorf("%d: %d requests", status, n)
		}
	}
}

func TestUnauthorizedErrorHidesToken(t *testing.T) {
	cfg, _ := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		respond(w, 401, `{"httpStatus":401,"messages":[{"errorCode":"315","message":"Unauthorized `+r.Header.Get("Authorization")+`"}]}`)
	}))
	_, err := newTestClient(t, cfg).List(t.Context())
	if err == nil || !strings.Contains(err.Error(), "IONOS_TOKEN") || strings.Contains(err.Error(), testToken) {
		t.Errorf("got %v", err)
	}
}

func TestErrorsHideEchoedToken(t *testing.T) {
	respondWith := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { respond(w, status, body) }
	}
	for name, h := range map[string]http.HandlerFunc{
		"in an error":     respondWith(500, `{"messages":[{"message":"rejected: Bearer `+testToken+`"}]}`),
		"twice":           respondWith(500, `{"messages":[{"message":"`+testToken+testToken+`"}]}`),
		"in an answer":    respondWith(200, `{"id":"x","type":"`+testToken+`"}`),
		"as an ID":        respondWith(200, `{"id":`+strings.Repeat(" ", 4000)+`"`+testToken+`","type":"collection","items":[]}`),
		"after an answer": respondWith(200, serversJSON("")+`"`+testToken+`"`),
		"as a date":       respondWith(200, serversJSON("", strings.Replace(serverJSON(1, nicJSON("2")), "2026-01-02T03:04:05Z", testToken, 1))),
		"in a redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://"+testToken+"/")
			w.WriteHeader(http.StatusFound)
		},
		"as an address": serveFixed(serversJSON("", serverJSON(1, nicJSON("2", testToken))), plainLANJSON).ServeHTTP,
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := startCloud(t, h)
			listing, err := newTestClient(t, cfg).List(t.Context())
			if (err == nil) != (len(listing.Invalid) > 0) {
				t.Fatalf("neither an error nor an invalid server: %v, %v", listing, err)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				expectHidden(t, fmt.Sprintf("%+v", e))
			}
			expectHidden(t, fmt.Sprint(listing))
		})
	}
}

func expectHidden(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, testToken[:10]) || strings.Contains(text, "s3cr3t") {
		t.Errorf("shows a part of the token: %s", text)
	}
}

func TestRejectsRedirects(t *testing.T) {
	elsewhere, j := startCloud(t, serveFixed(serversJSON(""), plainLANJSON))
	cfg, _ := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.APIURL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	_, err := newTestClient(t, cfg).List(t.Context())
	if err == nil || !strings.Contains(err.Error(), "redirect") ||
		!strings.Contains(err.Error(), strings.TrimPrefix(elsewhere.APIURL, "https://")) {
		t.Errorf("got %v", err)
	}
	if len(j.all()) != 0 {
		t.Error("the redirect was followed")
	}
}

func TestLimitsResponseSize(t *testing.T) {
	body := serversJSON("", serverJSON(1))
	cfg, _ := startCloud(t, serveFixed(body, plainLANJSON))
	c := newTestClient(t, cfg)
	c.transport.limit = int64(len(body)) - 1
	if _, err := c.List(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v", err)
	}
	c.transport.limit++
	if _, err := c.List(t.Context()); err != nil {
		t.Errorf("one of exactly the largest size: %v", err)
	}
}

func TestSlowResponseTimesOut(t *testing.T) {
	for name, begin := range map[string]string{"before its answer": "", "within its answer": `{"id":`} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			cfg, _ := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if begin != "" {
					respond(w, 200, begin)
					w.(http.Flusher).Flush()
				}
				<-done
			}))
			defer close(done)
			c := newTestClient(t, cfg)
			c.timeout = 50 * time.Millisecond
			_, err := c.List(t.Context())
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "within 50ms") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A connection over which nothing comes any more, such as one that a firewall has forgotten, gets no error either.
func TestASilentConnectionIsReplaced(t *testing.T) {
	cfg, j := startCloud(t, serveFixed(serversJSON(""), plainLANJSON))
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api := strings.TrimPrefix(cfg.APIURL, "https://")
	var silent atomic.Int64 // number of connections that are
	var conns sync.WaitGroup
	conns.Go(func() {
		for number := int64(1); ; number++ {
			near, err := proxy.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", api)
			if err != nil {
				t.Error(err)
				return
			}
			forward := func(to, from net.Conn) {
				defer to.Close()
				for buffer := make([]byte, 16<<10); ; {
					n, err := from.Read(buffer)
					if err != nil {
						return
					}
					if silent.Load() < number {
						_, _ = to.Write(buffer[:n])
					}
				}
			}
			conns.Go(func() { forward(near, far) })
			conns.Go(func() { forward(far, near) })
		}
	})
	defer conns.Wait()
	defer proxy.Close()
	cfg.APIURL = "https://" + proxy.Addr().String()
	c := newTestClient(t, cfg)
	c.timeout = 2 * time.Second
	pings := c.transport.base.(*http.Transport).HTTP2
	if pings.SendPingTimeout+pings.PingTimeout > requestTimeout {
		t.Errorf("a silent connection is found after %s and %s", pings.SendPingTimeout, pings.PingTimeout)
	}
	pings.SendPingTimeout, pings.PingTimeout = time.Second, time.Second
	defer c.transport.base.(*http.Transport).CloseIdleConnections()
	if _, err := c.List(t.Context()); err != nil || j.all()[0].ProtoMajor != 2 {
		t.Fatalf("%v, over HTTP/%d", err, j.all()[0].ProtoMajor)
	}
	silent.Store(1)
	for failures := 0; ; failures++ {
		_, err := c.List(t.Context())
		if err == nil {
			break
		}
		if failures == 2 {
			t.Fatalf("the third listing fails too: %v", err)
		}
	}
}

func TestBrokenConnectionIsAnError(t *testing.T) {
	cfg, _ := startCloud(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	if _, err := newTestClient(t, cfg).List(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestRejectsCertificateOfOtherCA(t *testing.T) {
	cfg, j := startCloud(t, serveFixed(serversJSON(""), plainLANJSON))
	cfg.CAFile = ""
	if _, err := newTestClient(t, cfg).List(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
	if len(j.all()) != 0 {
		t.Error("the token was sent")
	}
}

func TestCancellationEndsListing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg, _ := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }))
	if _, err := newTestClient(t, cfg).List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestReusesConnections(t *testing.T) {
	cfg, j := startCloud(t, serveFixed(serversJSON(""), plainLANJSON))
	c := newTestClient(t, cfg)
	for range 3 {
		if _, err := c.List(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	from := make(map[string]bool)
	for _, r := range j.all() {
		from[r.RemoteAddr] = true
	}
	if len(from) != 1 {
		t.Errorf("%d connections for %d requests", len(from), len(j.all()))
	}
}

func TestMetrics(t *testing.T) {
	// {"exp":1900000000}
	jwt := "eyJhbGciOiJub25lIn0.eyJleHAiOjE5MDAwMDAwMDB9.c2ln"
	cfg, _ := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "41")
		if strings.HasSuffix(r.URL.Path, "/lans/2") {
			respond(w, 503, "{}")
			return
		}
		respond(w, 200, serversJSON(""))
	}))
	reg := prometheus.NewRegistry()
	cfg.Registerer, cfg.Token = reg, jwt
	if _, err := newTestClient(t, cfg).List(t.Context()); err == nil {
		t.Fatal("no error")
	}
	want := `
# HELP slicefeed_inventory_ionos_rate_limit_remaining Number of requests that the IONOS API still allows, according to its last response.
# TYPE slicefeed_inventory_ionos_rate_limit_remaining gauge
slicefeed_inventory_ionos_rate_limit_remaining 41
# HELP slicefeed_inventory_ionos_requests_total Number of requests to the IONOS API, by HTTP status code; error: no response.
# TYPE slicefeed_inventory_ionos_requests_total counter
slicefeed_inventory_ionos_requests_total{code="200"} 1
slicefeed_inventory_ionos_requests_total{code="503"} 1
slicefeed_inventory_ionos_requests_total{code="error"} 0
# HELP slicefeed_inventory_ionos_token_expiry_timestamp_seconds Unix time at which the token in use expires; absent if the token does not contain it.
# TYPE slicefeed_inventory_ionos_token_expiry_timestamp_seconds gauge
slicefeed_inventory_ionos_token_expiry_timestamp_seconds 1.9e+09
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "slicefeed_inventory_ionos_rate_limit_remaining",
		"slicefeed_inventory_ionos_requests_total", "slicefeed_inventory_ionos_token_expiry_timestamp_seconds"); err != nil {
		t.Error(err)
	}
}
