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

// What a client with a good certificate may still get wrong, beyond what rubbish_test.go has.
func TestServerRejectsInvalidProtocols(t *testing.T) {
	for _, c := range []struct {
		name    string
		tls     func(*tls.Config)
		plain   string // said instead of any TLS
		after   string // said below the TLS, once that stands
		refused string // what the server says; empty: accepted
	}{
		{name: "as it should"},
		{name: "TLS 1.0", tls: limitVersion(tls.VersionTLS10), refused: "unsupported versions"},
		{name: "TLS 1.1", tls: limitVersion(tls.VersionTLS11), refused: "unsupported versions"},
		{name: "TLS 1.2", tls: limitVersion(tls.VersionTLS12), refused: "this end speaks TLS 1.3 alone"},
		{name: "TLS 1.2, to ask for a renegotiation", refused: "unsupported versions", tls: func(cfg *tls.Config) {
			cfg.MaxVersion, cfg.Renegotiation = tls.VersionTLS12, tls.RenegotiateFreelyAsClient
		}},
		{name: "a renegotiation of TLS 1.3, which has none", after: clientHello},
		{name: "no application protocol", tls: func(cfg *tls.Config) { cfg.NextProtos = nil }, refused: "ALPN"},
		{name: "two application protocols", tls: func(cfg *tls.Config) { cfg.NextProtos = []string{"other", "h2"} }},
		{name: "SSL 2", plain: "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + strings.Repeat("\x01", 64), refused: "SSLv2"},
		{name: "another service's greeting", plain: "SSH-2.0-OpenSSH_9.9\r\n", refused: "the peer speaks no TLS"},
		{name: "half a client hello", plain: clientHello[:20], refused: "EOF"},
		{name: "a client hello that says it has 16 MB", plain: "\x16\x03\x01\x00\x04\x01\xff\xff\xff", refused: "exceeds maximum"},
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
				cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{r.clientCert(t, writerCert)}}
				if c.tls != nil {
					c.tls(cfg)
				}
				conn := tls.Client(raw, cfg)
				io.WriteString(conn, http2Preface+settingsFrame+pingFrame)
				if c.refused == "" {
					readReply(t, conn, false)
				}
				if c.after != "" {
					io.WriteString(raw, c.after)
				}
				if c.refused != "" || c.after != "" {
					readReply(t, conn, true)
				}
			}
			if c.refused != "" {
				r.log.waitFor(t, c.refused)
			}
			if n := testutil.ToFloat64(r.server.creds.failures); (n > 0) != (c.refused != "") {
				t.Errorf("%v refusals are counted", n)
			}
			if err := checkHealth(t, r.dial(t, operatorCert, serverURI)); err != nil {
				t.Errorf("another client is refused: %v", err)
			}
		})
	}
}

func limitVersion(v uint16) func(*tls.Config) {
	return func(cfg *tls.Config) { cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10, v }
}

// clientHello is the record that begins a handshake, in the clear.
const clientHello = "\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03" + "0123456789abcdef0123456789abcdef" + "\x00\x00\x04\x13\x01\x00\xff\x01\x00"

// What a client may meet at the address that it is given.
func TestClientRejectsInvalidServers(t *testing.T) {
	for _, c := range []struct {
		name    string
		tls     func(*tls.Config) // of a server that is good but for it
		says    string            // the answer to whatever is said, instead of any TLS
		plain   bool              // gRPC without TLS
		refused string
	}{
		{name: "a good server"},
		{name: "a good server that asks for no certificate", tls: func(cfg *tls.Config) { cfg.ClientAuth = tls.NoClientCert }},
		{name: "TLS 1.0", tls: limitVersion(tls.VersionTLS10), refused: "TLS 1.3"},
		{name: "TLS 1.1", tls: limitVersion(tls.VersionTLS11), refused: "TLS 1.3"},
		{name: "TLS 1.2", tls: limitVersion(tls.VersionTLS12), refused: "TLS 1.3"},
		{name: "no application protocol", tls: func(cfg *tls.Config) { cfg.NextProtos = nil }, refused: "ALPN"},
		{name: "the application protocol of HTTP/1", tls: func(cfg *tls.Config) { cfg.NextProtos = []string{"http/1.1"} }, refused: "no application protocol"},
		{name: "gRPC in the clear", plain: true, refused: "the peer speaks no TLS"},
		{name: "HTTP/1 in the clear", says: "HTTP/1.1 400 Bad Request\r\n\r\n", refused: "the peer speaks no TLS"},
		{name: "another service's greeting", says: "SSH-2.0-OpenSSH_9.9\r\n", refused: "the peer speaks no TLS"},
		{name: "noise", says: strings.Repeat("\xfe", 1000), refused: "the peer speaks no TLS"},
		{name: "a record of 64 KB", says: "\x16\x03\x03\xff\xff" + strings.Repeat("x", 70000), refused: "oversized record"},
		{name: "an alert", says: "\x15\x03\x03\x00\x02\x02\x28", refused: "handshake failure"},
		{name: "a server hello that is none", says: "\x16\x03\x03\x00\x64\x02\x00\x00\x60" + strings.Repeat("x", 96), refused: "tls:"},
		{name: "a server hello that says it has 16 MB", says: "\x16\x03\x03\x00\x04\x02\xff\xff\xff", refused: "exceeds maximum"},
		{name: "nothing", says: "", refused: "EOF"},
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
			case c.tls == nil && c.refused == "":
				r.address = serveHealth(t, grpc.NewServer(), tls.NewListener(listenLocal(t), cfg))
			case c.tls != nil:
				c.tls(cfg)
				r.address = serveHealth(t, grpc.NewServer(), tls.NewListener(listenLocal(t), cfg))
			default:
				r.address = serveText(t, c.says)
			}
			err := checkHealth(t, r.dial(t, writerCert, serverURI))
			expectError(t, err, c.refused)
			if c.refused != "" && status.Code(err) != codes.Unavailable {
				t.Errorf("got %v, want UNAVAILABLE", err)
			}
		})
	}
}

func listenLocal(t *testing.T) net.Listener {
	t.Helper()
	return must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
}

// serveHealth has a server that is none of ours answer health.
func serveHealth(t *testing.T, gs *grpc.Server, on net.Listener) (address string) {
	t.Helper()
	healthpb.RegisterHealthServer(gs, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- gs.Serve(on) }()
	t.Cleanup(func() { gs.Stop(); <-done })
	return on.Addr().String()
}

// serveText is a server that waits for a word, gives its answer and hangs up.
func serveText(t *testing.T, says string) (address string) {
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
			io.WriteString(conn, says)
			conn.(*net.TCPConn).CloseWrite()
			conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			io.Copy(io.Discard, conn) // else a reset could overtake the answer
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}
