package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// quietServer is a server that does not log the handshakes that it rejects.
func quietServer(t *testing.T, handler http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	return s
}

func onlyProtocol(set func(*http.Protocols, bool)) *http.Protocols {
	p := &http.Protocols{}
	set(p, true)
	return p
}

// tlsServer is an HTTPS server with a self-signed certificate for another name.
func tlsServer(t *testing.T, config *tls.Config) string {
	s := quietServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/500", http.StatusFound)
		case "/500":
			w.WriteHeader(http.StatusInternalServerError)
		case "/hang":
			<-r.Context().Done()
		}
	}))
	s.TLS = config
	s.StartTLS()
	return s.URL
}

// selfSignedCert returns the self-signed certificate of httptest.
func selfSignedCert() []tls.Certificate {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return s.TLS.Certificates
}

// A new mode needs a server here that passes it.
func TestEveryModePassesItsServer(t *testing.T) {
	web := quietServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	web.Start()
	servers := map[Mode]string{TCP: web.URL, HTTP: web.URL, HTTPS: tlsServer(t, nil), GRPC: grpcServer(t, health.NewServer())}
	for _, mode := range Modes()[1:] {
		t.Run(mode.String(), func(t *testing.T) {
			if servers[mode] == "" {
				t.Fatal("no server for this mode")
			}
			checkProbe(t, servers[mode], Spec{Mode: mode}, Pass, "")
		})
	}
}

// An HTTP/2 server without TLS does not accept the HTTP/1.1 of a probe.
func TestHTTPProbeFailsOnPlaintextHTTP2(t *testing.T) {
	s := quietServer(t, http.NotFoundHandler())
	s.Config.Protocols = onlyProtocol((*http.Protocols).SetUnencryptedHTTP2)
	s.Start()
	checkProbe(t, s.URL, Spec{Mode: HTTP}, Fail, noValidResponse)
	checkProbe(t, s.URL, Spec{Mode: TCP}, Pass, "")
}

func TestHTTPSProbeResults(t *testing.T) {
	usual := tlsServer(t, &tls.Config{})
	http2Only := quietServer(t, http.NotFoundHandler())
	http2Only.Config.Protocols, http2Only.EnableHTTP2 = onlyProtocol((*http.Protocols).SetHTTP2), true
	http2Only.TLS = &tls.Config{NextProtos: []string{"h2"}}
	http2Only.StartTLS()
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for _, row := range []struct {
		name, address string
		spec          Spec
		result        Result
		detail        string
	}{
		{"a self-signed certificate", usual, Spec{}, Pass, ""},
		{"TLS 1.2 only", tlsServer(t, &tls.Config{MaxVersion: tls.VersionTLS12}), Spec{}, Pass, ""},
		{"TLS 1.3 only", tlsServer(t, &tls.Config{MinVersion: tls.VersionTLS13}), Spec{}, Pass, ""},
		{"TLS 1.1 only", tlsServer(t, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}), Spec{}, Fail, "TLS handshake rejected: protocol version not supported"},
		{"a redirect passes and is not followed", usual, Spec{Path: "/moved"}, Pass, ""},
		{"500", usual, Spec{Path: "/500"}, Fail, "status 500"},
		{"no response", usual, Spec{Path: "/hang", Timeout: 200 * time.Millisecond}, Fail, "no response within 200ms"},
		{"no handshake", rawServer(t, func(c net.Conn) { io.Copy(io.Discard, c) }), Spec{Timeout: 200 * time.Millisecond}, Fail, "no response within 200ms"},
		{"closes during the handshake", rawServer(t, func(net.Conn) {}), Spec{}, Fail, noValidResponse},
		{"refuses", closedAddress(t), Spec{}, Fail, "connection refused"},
		{"no TLS", plain.URL, Spec{}, Fail, "not a TLS server"},
		{"garbage", rawServer(t, func(c net.Conn) { c.Write([]byte("\x16\x03\x03\xff\xffgarbage")) }), Spec{}, Fail, "not a TLS server"},
		{"HTTP/2 only", http2Only.URL, Spec{}, Fail, noValidResponse},
		{"another protocol", tlsServer(t, &tls.Config{NextProtos: []string{"imap"}}), Spec{}, Fail, "TLS handshake rejected: no HTTP/1.1"},
		{"requires a client certificate", tlsServer(t, &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}), Spec{}, Fail, "TLS handshake rejected: handshake failure"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.spec.Mode = HTTPS
			checkProbe(t, row.address, row.spec, row.result, row.detail)
		})
	}
}

// The Host header is as configured, the SNI is without a port.
func TestHostSetsSNI(t *testing.T) {
	for _, row := range []struct{ set, host, sni string }{
		{"web.example", "web.example", "web.example"},
		{"web.example:8443", "web.example:8443", "web.example"},
		{"10.0.0.1", "10.0.0.1", ""}, // an address is not sent as SNI
		{"[2001:db8::1]:8443", "[2001:db8::1]:8443", ""},
		{"", "", ""}, // the backend's address
	} {
		for _, mode := range []Mode{HTTPS, GRPC} {
			t.Run(mode.String()+" "+row.set, func(t *testing.T) {
				type names struct{ host, sni string }
				got := make(chan names, 1)
				s := quietServer(
					t,
					http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- names{r.Host, r.TLS.ServerName} }),
				)
				s.EnableHTTP2 = true
				s.StartTLS()
				k := keyFor(t, s.URL, Spec{Mode: mode, Host: row.set, TLS: true, Timeout: 10 * time.Second})
				attempt(context.Background(), k.Canonical())
				want := names{row.host, row.sni}
				if row.set == "" {
					want.host = k.HostPort()
				}
				if seen := <-got; seen != want {
					t.Errorf("got %+v, want %+v", seen, want)
				}
			})
		}
	}
}

// fakeHealth responds with any result.
type fakeHealth struct {
	healthv1.UnimplementedHealthServer

	answer func(context.Context) (*healthv1.HealthCheckResponse, error)
}

func (o fakeHealth) Check(ctx context.Context, _ *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	return o.answer(ctx)
}

// grpcServer starts a real gRPC server.
func grpcServer(t *testing.T, server healthv1.HealthServer, options ...grpc.ServerOption) string {
	s := grpc.NewServer(options...)
	if server != nil {
		healthv1.RegisterHealthServer(s, server)
	}
	l := listenTCP(t)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestGRPCProbeResults(t *testing.T) {
	short := 200 * time.Millisecond
	some := health.NewServer()
	some.SetServingStatus("shop.v1.Orders", healthv1.HealthCheckResponse_NOT_SERVING)
	some.SetServingStatus("shop.v1.Carts", healthv1.HealthCheckResponse_SERVING)
	customHealth := func(f func(context.Context) (*healthv1.HealthCheckResponse, error)) string {
		return grpcServer(t, fakeHealth{answer: f})
	}
	failsWith := func(code codes.Code) string {
		return customHealth(func(context.Context) (*healthv1.HealthCheckResponse, error) {
			return nil, status.Error(code, "\x1b[31mred")
		})
	}
	hangs := func(ctx context.Context) (*healthv1.HealthCheckResponse, error) { <-ctx.Done(); return nil, ctx.Err() }
	own := selfSignedCert()
	overTLS := grpcServer(t, some, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: own})))
	overTLS12 := grpcServer(t, some, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: own, MaxVersion: tls.VersionTLS12})))
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	// HTTP/2 servers that are no gRPC servers.
	h2 := func(handler http.HandlerFunc) string {
		s := quietServer(t, handler)
		s.Config.Protocols = onlyProtocol((*http.Protocols).SetUnencryptedHTTP2)
		s.Start()
		return s.URL
	}
	pretends := func(trailer string, body []byte) string {
		return h2(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			w.Write(body)
			w.Header().Set("Grpc-Status", trailer)
		})
	}
	endless := h2(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		for part := make([]byte, 16<<10); r.Context().Err() == nil; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})

	for _, row := range []struct {
		name, address string
		spec          Spec
		result        Result
		detail        string
	}{
		{"SERVING", grpcServer(t, some), Spec{}, Pass, ""},
		{"a service that is SERVING", grpcServer(t, some), Spec{Service: "shop.v1.Carts"}, Pass, ""},
		{"a service that is NOT_SERVING", grpcServer(t, some), Spec{Service: "shop.v1.Orders"}, Fail, "health is NOT_SERVING"},
		{"an unknown service", grpcServer(t, some), Spec{Service: "shop.v1.Payments"}, Fail, "service not known to the health service (NOT_FOUND)"},
		{"an unknown health", customHealth(func(context.Context) (*healthv1.HealthCheckResponse, error) {
			return &healthv1.HealthCheckResponse{Status: 77}, nil
		}), Spec{}, Fail, "health is 77"},
		{"SERVICE_UNKNOWN", customHealth(func(context.Context) (*healthv1.HealthCheckResponse, error) {
			return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVICE_UNKNOWN}, nil
		}), Spec{}, Fail, "health is SERVICE_UNKNOWN"},
		{"no health service", grpcServer(t, nil), Spec{}, Fail, "no grpc.health.v1.Health service (UNIMPLEMENTED)"},
		{"requires credentials", failsWith(codes.Unauthenticated), Spec{}, Fail, "no valid response (gRPC status Unauthenticated)"},
		{"an error with a message", failsWith(codes.Internal), Spec{}, Fail, "no valid response (gRPC status Internal)"},
		{"reports the deadline first", failsWith(codes.DeadlineExceeded), Spec{}, Fail, "no response within 10s"},
		{"no response", customHealth(hangs), Spec{Timeout: short}, Fail, "no response within 200ms"},
		{"accepts without a response", rawServer(t, func(c net.Conn) { io.Copy(io.Discard, c) }), Spec{Timeout: short}, Fail, "no response within 200ms"},
		{"closes", rawServer(t, func(net.Conn) {}), Spec{}, Fail, "no valid response (gRPC status Unavailable)"},
		{"refuses", closedAddress(t), Spec{}, Fail, "connection refused"},
		{"HTTP/1.1 only", web.URL, Spec{}, Fail, "no valid response (gRPC status Unavailable)"},
		{"HTTP/2 without gRPC", h2(http.NotFound), Spec{}, Fail, "no grpc.health.v1.Health service (UNIMPLEMENTED)"},
		{"an HTML page", h2(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }), Spec{}, Fail, "no valid response (gRPC status Unknown)"},
		{"garbage", rawServer(t, func(c net.Conn) { c.Write([]byte("\x00\x00\xff\xffgarbage garbage garbage")) }), Spec{}, Fail, "no valid response (gRPC status Unavailable)"},
		{"no status", pretends("", []byte{0, 0, 0, 0, 2, 8, 1}), Spec{}, Fail, "no valid response (gRPC status Unknown)"},
		{"an invalid status", pretends("99", []byte{0, 0, 0, 0, 2, 8, 1}), Spec{}, Fail, "no valid response (gRPC status Unknown)"},
		{"a valid response", pretends("0", []byte{0, 0, 0, 0, 2, 8, 1}), Spec{}, Pass, ""},
		{"no message", pretends("0", nil), Spec{}, Fail, "no valid response (gRPC status Internal)"},
		{"a truncated message", pretends("0", []byte{0, 0, 0, 0, 3, 8, 1}), Spec{}, Fail, "no valid response (gRPC status Internal)"},
		{"two messages", pretends("0", []byte{0, 0, 0, 0, 2, 8, 1, 0, 0, 0, 0, 2, 8, 1}), Spec{}, Fail, "no valid response (gRPC status Internal)"},
		{"an invalid message", pretends("0", []byte{0, 0, 0, 0, 1, 255}), Spec{}, Fail, "no valid response (gRPC status Internal)"},
		{"an endless response", endless, Spec{}, Fail, "no valid response (gRPC status Internal)"},
		{"over TLS, unverified", overTLS, Spec{TLS: true}, Pass, ""},
		{"over TLS 1.2", overTLS12, Spec{TLS: true}, Pass, ""},
		{"over TLS, plaintext server", grpcServer(t, some), Spec{TLS: true}, Fail, "not a TLS server"},
		{"without TLS, TLS server", overTLS, Spec{}, Fail, "no valid response (gRPC status Unavailable)"},
		{"over TLS, without HTTP/2", tlsServer(t, &tls.Config{NextProtos: []string{"http/1.1"}}), Spec{TLS: true}, Fail, "TLS handshake rejected: no HTTP/2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.spec.Mode = GRPC
			checkProbe(t, row.address, row.spec, row.result, row.detail)
		})
	}
}

// Endless data ends the probe before the timeout.
func TestLimitsEndlessResponses(t *testing.T) {
	for name, row := range map[string]struct {
		greeting, forever string
		spec              Spec
		result            Result
		detail            string
	}{
		"http: continue":     {"", "HTTP/1.1 100 Continue\r\n\r\n", Spec{Mode: HTTP}, Fail, "no valid response"},
		"http: a body":       {"HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 1024), Spec{Mode: HTTP}, Pass, ""},
		"http: tiny chunks":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1;" + strings.Repeat("x", 512) + "\r\nx\r\n", Spec{Mode: HTTP}, Fail, "no valid response"},
		"grpc: settings":     {"", "\x00\x00\x00\x04\x00\x00\x00\x00\x00", Spec{Mode: GRPC}, Fail, "no valid response (gRPC status Unavailable)"},
		"grpc: pings":        {"\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x06\x01\x00\x00\x00\x00" + "12345678", Spec{Mode: GRPC}, Fail, "no valid response (gRPC status Unavailable)"},
		"https: no TLS":      {"", "HTTP/1.1 100 Continue\r\n\r\n", Spec{Mode: HTTPS}, Fail, "not a TLS server"},
		"https: TLS records": {"", "\x14\x03\x03\x00\x01\x01", Spec{Mode: HTTPS}, Fail, "not a TLS server"},
	} {
		t.Run(name, func(t *testing.T) {
			address := rawServer(t, func(c net.Conn) {
				io.WriteString(c, row.greeting)
				part := []byte(strings.Repeat(row.forever, 1+4096/len(row.forever)))
				for {
					if _, err := c.Write(part); err != nil {
						return
					}
				}
			})
			checkProbe(t, address, row.spec, row.result, row.detail)
		})
	}
}

// A GOAWAY before the call is processed lets a client retry on another connection. A probe has only one.
func TestGRPCProbeIsNotRetried(t *testing.T) {
	for _, row := range []struct {
		name   string
		tls    bool
		scheme byte
	}{{"without TLS", false, 0x86}, {"over TLS", true, 0x87}} {
		t.Run(row.name, func(t *testing.T) {
			l := listenTCP(t)
			if row.tls {
				l = tls.NewListener(l, &tls.Config{Certificates: selfSignedCert(), NextProtos: []string{"h2"}})
			}
			defer l.Close()
			post := []byte{0x83, row.scheme} // the first bytes of a call in HPACK
			calls := make(chan struct{}, 10)
			go func() {
				defer close(calls)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					io.WriteString(c, "\x00\x00\x00\x04\x00\x00\x00\x00\x00") // SETTINGS
					var received []byte
					for buf := make([]byte, 4096); err == nil && !bytes.Contains(received, post); {
						var n int
						n, err = c.Read(buf)
						received = append(received, buf[:n]...)
					}
					calls <- struct{}{}
					io.WriteString(c, "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00") // GOAWAY, last stream 0
					io.Copy(io.Discard, c)
					c.Close()
				}
			}()
			checkProbe(t, l.Addr().String(), Spec{Mode: GRPC, TLS: row.tls}, Fail, "no valid response (gRPC status Unavailable)")
			l.Close()
			n := 0
			for range calls {
				n++
			}
			if n != 1 {
				t.Errorf("%d connections, want one", n)
			}
		})
	}
}

// A client would send GOAWAY and wait up to 5 s until it is written.
func TestGRPCProbeEndsAtTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientEnd, backendEnd := net.Pipe()
		go func() {
			go io.WriteString(backendEnd, "\x00\x00\x00\x04\x00\x00\x00\x00\x00") // SETTINGS
			var received []byte
			for buf := make([]byte, 4096); !bytes.Contains(received, []byte{0x83, 0x86}); { // the first bytes of a call
				n, err := backendEnd.Read(buf)
				if err != nil {
					t.Error(err)
					return
				}
				received = append(received, buf[:n]...)
			} // and reads no further
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := probeConn(ctx, clientEnd, Key{Address: netip.MustParseAddr("10.0.0.1"), Port: 1, Spec: Spec{Mode: GRPC}})
		if took := time.Since(began); took != time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %v", err, took)
		}
	})
}
