package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestIdleConnectionsDoNotBlockOthers(t *testing.T) {
	s := &Server{}
	admin, debug := startServer(t, s)
	for _, one := range []struct{ url, address string }{{admin + "/livez", s.Admin.Addr().String()}, {debug + "/debug/pprof/cmdline", s.Debug.Addr().String()}} {
		var silent []net.Conn
		soon := time.Now().Add(4 * time.Second) // after five a header that does not come ends a connection by itself
		for range maxConnsPerListener + 20 {
			conn, err := net.Dial("tcp", one.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			silent = append(silent, conn)
		}
		if code, body := httpGet(t, one.url); code != http.StatusOK {
			t.Errorf("%s answers %d: %s", one.url, code, body)
		}
		if time.Now().After(soon) {
			t.Log("the machine is too slow to tell why connections end")
			continue
		}
		silent[0].SetReadDeadline(soon)
		if _, err := silent[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the oldest connection was not closed: %v", err)
		}
		last := silent[len(silent)-1]
		last.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := last.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the newest connection was closed: %v", err)
		}
	}
}

// pipeListener is a listener of connections in memory, so that time can be the test's.
type pipeListener struct{ conns chan net.Conn }

func (p *pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p *pipeListener) Close() error   { close(p.conns); return nil }
func (p *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "a pipe"} }

func TestAdminListenerDropsSlowPeers(t *testing.T) {
	for name, says := range map[string]string{
		"nothing":                      "",
		"half a header":                "GET /livez HT",
		"a header, and never a body":   "GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
		"a question, and then no more": "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{Logger: slog.New(slog.DiscardHandler)}
				l := &pipeListener{make(chan net.Conn)}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					done <- s.serveListener(ctx, httpListener{listener: l, handler: checksHandler("livez", nil), timeout: maxRequestTime})
				}()
				ours, theirs := net.Pipe()
				l.conns <- theirs
				began := time.Now()
				go io.WriteString(ours, says) // an error of it is found by reading
				heard, _ := io.ReadAll(ours)  // until it is closed
				if took := time.Since(began); took > maxRequestTime+time.Minute {
					t.Errorf("it was waited for for %s", took)
				}
				if name == "a question, and then no more" && !bytes.Contains(heard, []byte("200 OK")) {
					t.Errorf("heard %q", heard)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestDocumentedLimitsMatchCode(t *testing.T) {
	text, err := os.ReadFile("../../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		fmt.Sprintf("| connections, of each listener | %d |", maxConnsPerListener),
		fmt.Sprintf("| %.0f s each |", maxRequestTime.Seconds()),
	} {
		if !bytes.Contains(text, []byte(row)) {
			t.Errorf("docs/limits.md does not say %q", row)
		}
	}
}
