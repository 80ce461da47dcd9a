package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// rawServer calls f for each connection after the first bytes of the request.
func rawServer(t *testing.T, f func(net.Conn)) string {
	l := listenTCP(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			c.Read(buf)
			f(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// checkProbe runs one probe and checks its result.
func checkProbe(t *testing.T, address string, spec Spec, result Result, detail string) {
	t.Helper()
	if spec.Timeout == 0 {
		spec.Timeout = 10 * time.Second // long enough for slow machines
	}
	gotOutcome, gotDetail := attempt(context.Background(), keyFor(t, address, spec).Canonical())
	if gotOutcome != result || gotDetail != detail {
		t.Errorf("%v %q, want %v %q", gotOutcome, gotDetail, result, detail)
	}
}

func TestProbeResults(t *testing.T) {
	var redirected atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/host":
			if r.Host != "web.example" {
				w.WriteHeader(http.StatusNotFound)
			}
		case "/query":
			if r.URL.RawQuery != "full=1" {
				w.WriteHeader(http.StatusNotFound)
			}
		case "/elsewhere":
			redirected.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
		case "/moved":
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
		case "/slow":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/huge":
			part := make([]byte, 64<<10)
			for r.Context().Err() == nil {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		case "/hang":
			<-r.Context().Done()
		default:
			code := 200
			fmt.Sscanf(r.URL.Path, "/%d", &code) // 200 otherwise
			w.WriteHeader(code)
		}
	}))
	t.Cleanup(server.Close)
	silent := rawServer(t, func(c net.Conn) { io.Copy(io.Discard, c) }) // until the prober closes the connection
	closes := rawServer(t, func(net.Conn) {})
	switches := rawServer(t, func(c net.Conn) {
		c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
	})
	garbage := rawServer(t, func(c net.Conn) { c.Write([]byte("invalid\r\n\r\n")) })
	headers := rawServer(t, func(c net.Conn) {
		c.Write([]byte("HTTP/1.1 200 OK\r\n"))
		for {
			if _, err := c.Write([]byte("X-More: " + strings.Repeat("x", 1000) + "\r\n")); err != nil {
				return
			}
		}
	})
	short := 200 * time.Millisecond

	for _, row := range []struct {
		name, address string
		spec          Spec
		result        Result
		detail        string
	}{
		{"tcp: accepts", server.URL, Spec{Mode: TCP}, Pass, ""},
		{"tcp: refuses", closedAddress(t), Spec{Mode: TCP}, Fail, "connection refused"},
		{"http: 200", server.URL, Spec{Mode: HTTP}, Pass, ""},
		{"http: 204", server.URL, Spec{Mode: HTTP, Path: "/204"}, Pass, ""},
		{"http: 301 passes and is not followed", server.URL, Spec{Mode: HTTP, Path: "/moved"}, Pass, ""},
		{"http: 399", server.URL, Spec{Mode: HTTP, Path: "/399"}, Pass, ""},
		{"http: 400", server.URL, Spec{Mode: HTTP, Path: "/400"}, Fail, "status 400"},
		{"http: 500", server.URL, Spec{Mode: HTTP, Path: "/500"}, Fail, "status 500"},
		{"http: the Host header as set", server.URL, Spec{Mode: HTTP, Path: "/host", Host: "web.example"}, Pass, ""},
		{"http: the default Host header", server.URL, Spec{Mode: HTTP, Path: "/host"}, Fail, "status 404"},
		{"http: a query", server.URL, Spec{Mode: HTTP, Path: "/query?full=1"}, Pass, ""},
		{"http: no response", server.URL, Spec{Mode: HTTP, Path: "/hang", Timeout: short}, Fail, "no response within 200ms"},
		{"http: incomplete body", server.URL, Spec{Mode: HTTP, Path: "/slow", Timeout: short}, Fail, "no response within 200ms"},
		{"http: endless body", server.URL, Spec{Mode: HTTP, Path: "/huge"}, Pass, ""},
		{"http: endless headers", headers, Spec{Mode: HTTP}, Fail, "no valid response"},
		{"http: refuses", closedAddress(t), Spec{Mode: HTTP}, Fail, "connection refused"},
		{"http: accepts without a response", silent, Spec{Mode: HTTP, Timeout: short}, Fail, "no response within 200ms"},
		{"http: closes", closes, Spec{Mode: HTTP}, Fail, "no valid response"},
		{"http: 101", switches, Spec{Mode: HTTP}, Fail, "status 101"},
		{"http: garbage", garbage, Spec{Mode: HTTP}, Fail, "no valid response"},
		{"http: TLS only", tlsServer(t, &tls.Config{}), Spec{Mode: HTTP}, Fail, "status 400"},
		{"http: invalid spec", server.URL, Spec{Mode: HTTP, Path: "x"}, Inconclusive, "invalid probe spec"},
		{"off", server.URL, Spec{}, Inconclusive, "invalid probe spec"},
	} {
		t.Run(row.name, func(t *testing.T) { checkProbe(t, row.address, row.spec, row.result, row.detail) })
	}
	if n := redirected.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
}

func TestLocalErrorsAreInconclusive(t *testing.T) {
	for name, err := range map[string]error{
		"no file descriptors": &net.OpError{Op: "dial", Err: &net.DNSError{Err: "x", UnwrapErr: syscall.EMFILE}},
		"no ports":            fmt.Errorf("dial: %w", syscall.EADDRNOTAVAIL),
		"shutdown":            fmt.Errorf("dial: %w", context.Canceled),
	} {
		if got, _ := classifyError(err, Spec{}); got != Inconclusive {
			t.Errorf("%s: %v", name, got)
		}
	}
	for name, err := range map[string]error{
		"no route": fmt.Errorf("dial: %w", syscall.EHOSTUNREACH), "reset": fmt.Errorf("read: %w", syscall.ECONNRESET),
		"no network": fmt.Errorf("dial: %w", syscall.ENETUNREACH), "other": errors.New("malformed"),
	} {
		if got, detail := classifyError(err, Spec{}); got != Fail || detail == "" {
			t.Errorf("%s: %v %q", name, got, detail)
		}
	}
}

// A graceful close would be read as EOF. A reset leaves no socket in TIME_WAIT.
func TestClosesConnectionsWithReset(t *testing.T) {
	l := listenTCP(t)
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			_, err = c.Read(make([]byte, 1))
		}
		ended <- err
	}()
	if o, _ := attempt(context.Background(), keyFor(t, l.Addr().String(), Spec{Mode: TCP}).Canonical()); o != Pass {
		t.Fatal(o)
	}
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the backend got %v, want a reset", err)
	}
}
