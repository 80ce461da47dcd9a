package link

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// A client with a good certificate may still use a wrong protocol. garbage_test.go has more cases.
func TestServerRejectsInvalidProtocols(t *testing.T) {
	for _, c := range []struct {
		name   string
		tls    func(*tls.Config)
		plain  string // sent instead of TLS
		after  string // sent below TLS after the handshake
		logged string // by the server; empty: accepted
	}{
		{name: "a good client"},
		{name: "TLS 1.0", tls: limitVersion(tls.VersionTLS10), logged: "unsupported versions"},
		{name: "TLS 1.1", tls: limitVersion(tls.VersionTLS11), logged: "unsupported versions"},
		{name: "TLS 1.2", tls: limitVersion(tls.VersionTLS12), logged: "this end requires TLS 1.3"},
		{name: "TLS 1.2 with renegotiation", logged: "unsupported versions", tls: func(cfg *tls.Config) {
			cfg.MaxVersion, cfg.Renegotiation = tls.VersionTLS12, tls.RenegotiateFreelyAsClient
		}},
		{name: "renegotiation, which TLS 1.3 does not have", after: clientHello},
		{name: "no application protocol", tls: func(cfg *tls.Config) { cfg.NextProtos = nil }, logged: "ALPN"},
		{name: "two application protocols", tls: func(cfg *tls.Config) { cfg.NextProtos = []string{"other", "h2"} }},
		{name: "SSL 2", plain: "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + strings.Repeat("\x01", 64), logged: "SSLv2"},
		{name: "another protocol", plain: "SSH-2.0-OpenSSH_9.9\r\n", logged: "the peer does not use TLS"},
		{name: "a truncated client hello", plain: clientHello[:20], logged: "EOF"},
		{name: "a client hello with a length of 16 MB", plain: "\x16\x03\x01\x00\x04\x01\xff\xff\xff", logged: "exceeds maximum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newTestLink(t, serverCert)
			raw := must(net.Dial("tcp", r.address))(t).(*net.TCPConn)
			defer raw.Close()
			raw.SetDeadline(time.Now().Add(20 * time.Second))
			if c.plain != "" {
				io.WriteString(raw, c.plain)
				raw.CloseWrite()
				io.Copy(io.Discard, raw)
			} else {
				cfg := &tls.Config{
					InsecureSkipVerify: true,
					NextProtos:         []string{"h2"},
					Certificates:       []tls.Certificate{r.clientCert(t, writerCert)},
				}
				if c.tls != nil {
					c.tls(cfg)
				}
				conn := tls.Client(raw, cfg)
				io.WriteString(conn, http2Preface+settingsFrame+pingFrame)
				if c.logged == "" {
					readReply(t, conn, false)
				}
				if c.after != "" {
					io.WriteString(raw, c.after)
				}
				if c.logged != "" || c.after != "" {
					readReply(t, conn, true)
				}
			}
			if c.logged != "" {
				r.log.waitFor(t, c.logged)
			}
			if n := testutil.ToFloat64(r.server.handshaker.failures); (n > 0) != (c.logged != "") {
				t.Errorf("counted %v failures", n)
			}
			if err := checkHealth(t, r.dial(t, operatorCert, serverURI)); err != nil {
				t.Errorf("another client is rejected: %v", err)
			}
		})
	}
}

func limitVersion(v uint16) func(*tls.Config) {
	return func(cfg *tls.Config) { cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10, v }
}

// clientHello is the unencrypted record that starts a handshake.
const clientHello = "\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03" + "0123456789abcdef0123456789abcdef" + "\x00\x00\x04\x13\x01\x00\xff\x01\x00"

// A client's address may lead to anything.
func TestClientRejectsInvalidServers(t *testing.T) {
	for _, c := range []struct {
		name    string
		tls     func(*tls.Config) // changes a good server
		reply   string            // sent instead of TLS
		plain   bool              // gRPC without TLS
		wantErr string            // empty: accepted
	}{
		{name: "a good server"},
		{name: "a good server that requests no certificate", tls: func(cfg *tls.Config) { cfg.ClientAuth = tls.NoClientCert }},
		{name: "TLS 1.0", tls: limitVersion(tls.VersionTLS10), wantErr: "TLS 1.3"},
		{name: "TLS 1.1", tls: limitVersion(tls.VersionTLS11), wantErr: "TLS 1.3"},
		{name: "TLS 1.2", tls: limitVersion(tls.VersionTLS12), wantErr: "TLS 1.3"},
		{name: "no application protocol", tls: func(cfg *tls.Config) { cfg.NextProtos = nil }, wantErr: "ALPN"},
		{name: "the application protocol of HTTP/1", tls: func(cfg *tls.Config) { cfg.NextProtos = []string{"http/1.1"} }, wantErr: "no application protocol"},
		{name: "gRPC without TLS", plain: true, wantErr: "the peer does not use TLS"},
		{name: "HTTP/1 without TLS", reply: "HTTP/1.1 400 Bad Request\r\n\r\n", wantErr: "the peer does not use TLS"},
		{name: "another protocol", reply: "SSH-2.0-OpenSSH_9.9\r\n", wantErr: "the peer does not use TLS"},
		{name: "random bytes", reply: strings.Repeat("\xfe", 1000), wantErr: "the peer does not use TLS"},
		{name: "a record of 64 KB", reply: "\x16\x03\x03\xff\xff" + strings.Repeat("x", 70000), wantErr: "oversized record"},
		{name: "an alert", reply: "\x15\x03\x03\x00\x02\x02\x28", wantErr: "handshake failure"},
		{name: "an invalid server hello", reply: "\x16\x03\x03\x00\x64\x02\x00\x00\x60" + strings.Repeat("x", 96), wantErr: "tls:"},
		{name: "a server hello with a length of 16 MB", reply: "\x16\x03\x03\x00\x04\x02\xff\xff\xff", wantErr: "exceeds maximum"},
		{name: "nothing", reply: "", wantErr: "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &testLink{serverCA: newTestCA(t, "server CA"), clientCA: newTestCA(t, "client CA"), log: &testLog{}}
			certPEM, keyPEM := r.serverCA.issueCert(t, serverCert)
			cfg := &tls.Config{
				NextProtos: []string{"h2"}, ClientAuth: tls.RequireAnyClientCert,
				Certificates: []tls.Certificate{must(tls.X509KeyPair(certPEM, keyPEM))(t)},
			}
			switch {
			case c.plain:
				r.address = serveHealth(t, grpc.NewServer(), listenLocal(t))
			case c.tls == nil && c.wantErr == "":
				r.address = serveHealth(t, grpc.NewServer(), tls.NewListener(listenLocal(t), cfg))
			case c.tls != nil:
				c.tls(cfg)
				r.address = serveHealth(t, grpc.NewServer(), tls.NewListener(listenLocal(t), cfg))
			default:
				r.address = serveText(t, c.reply)
			}
			err := checkHealth(t, r.dial(t, writerCert, serverURI))
			expectError(t, err, c.wantErr)
			if c.wantErr != "" && status.Code(err) != codes.Unavailable {
				t.Errorf("got %v, want UNAVAILABLE", err)
			}
		})
	}
}

func listenLocal(t *testing.T) net.Listener {
	t.Helper()
	return must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
}

// serveHealth serves health with a plain grpc server.
func serveHealth(t *testing.T, gs *grpc.Server, on net.Listener) (address string) {
	t.Helper()
	healthpb.RegisterHealthServer(gs, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- gs.Serve(on) }()
	t.Cleanup(func() { gs.Stop(); <-done })
	return on.Addr().String()
}

// serveText starts a server that waits for data, sends its reply and closes the connection.
func serveText(t *testing.T, reply string) (address string) {
	t.Helper()
	l := listenLocal(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 4096))
			io.WriteString(conn, reply)
			conn.(*net.TCPConn).CloseWrite()
			conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			io.Copy(io.Discard, conn) // otherwise a reset could overtake the reply
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}
