package admin

import (
	"bytes"
	"context"
	"errors"
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
	for _, tt := range []struct{ url, address string }{{admin + "/livez", s.Admin.Addr().String()}, {debug + "/debug/pprof/cmdline", s.Debug.Addr().String()}} {
		var idle []net.Conn
		deadline := time.Now().Add(4 * time.Second) // ReadHeaderTimeout ends connections after five
		for range maxConnsPerListener + 20 {
			conn, err := net.Dial("tcp", tt.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			idle = append(idle, conn)
		}
		if code, body := httpGet(t, tt.url); code != http.StatusOK {
			t.Errorf("%s returns %d: %s", tt.url, code, body)
		}
		if time.Now().After(deadline) {
			t.Log("machine too slow: connections may have timed out")
			continue
		}
		idle[0].SetReadDeadline(deadline)
		if _, err := idle[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("oldest connection is open: %v", err)
		}
		last := idle[len(idle)-1]
		last.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := last.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("newest connection is closed: %v", err)
		}
	}
}

// pipeListener is a listener of in-memory connections, for synctest.
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
	for name, sent := range map[string]string{
		"nothing":                   "",
		"part of a header":          "GET /livez HT",
		"a header without its body": "GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
		"a request, then nothing":   "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{Logger: slog.New(slog.DiscardHandler)}
				l := &pipeListener{make(chan net.Conn)}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					done <- s.serveListener(ctx, httpListener{listener: l, handler: probeHandler(func() error { return nil }), timeout: maxRequestTime})
				}()
				client, server := net.Pipe()
				l.conns <- server
				startedAt := time.Now()
				go io.WriteString(client, sent) // reading returns its error
				reply, _ := io.ReadAll(client)  // until the connection is closed
				if took := time.Since(startedAt); took > maxRequestTime+time.Minute {
					t.Errorf("connection closed after %s", took)
				}
				if name == "a request, then nothing" && !bytes.Contains(reply, []byte("200 OK")) {
					t.Errorf("got %q", reply)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
