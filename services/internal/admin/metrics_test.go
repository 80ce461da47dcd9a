package admin

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// peerConn is an in-memory connection with a remote address.
type peerConn struct {
	net.Conn

	address string
}

func (p peerConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(p.address))
}

// startAdmin serves the admin listener in memory. dial connects from an address.
func startAdmin(t *testing.T) (dial func(from string) net.Conn, end func()) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "slicefeed_test_total"}))
	s := &Server{Logger: slog.New(slog.DiscardHandler), Gatherer: registry}
	l := &pipeListener{make(chan net.Conn)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.serveListener(ctx, httpListener{listener: l, handler: s.adminHandler(), timeout: maxRequestTime})
	}()
	var all []net.Conn
	dial = func(from string) net.Conn {
		client, server := net.Pipe()
		all = append(all, client)
		l.conns <- peerConn{server, from}
		return client
	}
	return dial, func() {
		for _, conn := range all {
			conn.Close()
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// sendScrape requests /metrics without reading the response.
func sendScrape(conn net.Conn) { io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n") }

func mustScrape(t *testing.T, conn net.Conn) {
	t.Helper()
	sendScrape(conn)
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(body), "slicefeed_test_total 0") {
		t.Fatalf("got %d %q, %v", r.StatusCode, body, err)
	}
}

func TestSlowReadersDoNotBlockScrapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, end := startAdmin(t)
		defer end()
		var slow []net.Conn
		for range 3 * maxUnreadScrapes {
			conn := dial("192.0.2.1:1")
			sendScrape(conn)
			slow = append(slow, conn)
		}
		synctest.Wait() // all responses with a slot are being written
		for range 40 {
			mustScrape(t, dial("192.0.2.2:1"))
		}
		closed := 0
		for _, conn := range slow {
			conn.SetReadDeadline(time.Now().Add(time.Nanosecond))
			if _, err := io.Copy(io.Discard, conn); err == nil { // closed during its response, or before
				closed++
			}
		}
		if want := 2*maxUnreadScrapes + 1; closed < want {
			t.Errorf("closed the connections of %d slow readers, want %d", closed, want)
		}
	})
}

func TestClosesSlowMetricsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, end := startAdmin(t)
		defer end()
		conn := dial("192.0.2.1:1")
		sendScrape(conn)
		startedAt := time.Now()
		time.Sleep(maxScrapeTime + time.Second)
		synctest.Wait()
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Error(err)
		}
		if took := time.Since(startedAt); took > maxScrapeTime+2*time.Second {
			t.Errorf("connection closed after %s", took)
		}
	})
}

func TestKeepsActiveMetricsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, end := startAdmin(t)
		defer end()
		conn := dial("192.0.2.1:1")
		for range 5 {
			mustScrape(t, conn)
			time.Sleep(20 * time.Second)
		}
	})
}

func TestServesHTTP2OnlyOnDebugListener(t *testing.T) {
	s := &Server{}
	startServer(t, s)
	for _, c := range []struct {
		on    net.Listener
		http2 bool
	}{{s.Admin, false}, {s.Debug, true}} {
		conn, err := net.Dial("tcp", c.on.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		head := make([]byte, 9)
		io.ReadFull(conn, head)
		if isSettings := head[3] == 4; isSettings != c.http2 {
			t.Errorf("%s responds to an HTTP/2 preface with %q", c.on.Addr(), head)
		}
	}
}
