package link

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The rejected end reports which certificate was rejected, and the other end also why. A rejected client
// may also only see its connection end, so the test repeats the call.
func TestBothEndsExplainHandshakeErrors(t *testing.T) {
	rejected := []string{"bad certificate", `the server rejected the certificate for ["` + writerURI + `"]`, "see the server's log"}
	for _, c := range []struct {
		name                   string
		server                 certSpec
		client                 certSpec
		spoil                  func(t *testing.T, r *testLink, client Files)
		want                   SAN
		clientError, serverLog []string
	}{
		{
			name: "the server does not trust the client's CA", client: writerCert, server: serverCert, clientError: rejected,
			spoil: func(t *testing.T, r *testLink, client Files) {
				newTestCA(t, "client CA").renewFiles(t, writerCert, client)
			},
			serverLog: []string{`certificate for ["` + writerURI + `"]`, "unknown authority", "peer-ca.crt must contain the CA that signs it"},
		},
		{
			name: "the client's certificate has expired", client: certSpec{sans: []string{writerURI}, usages: forClients, expired: true}, server: serverCert,
			clientError: rejected, serverLog: []string{`certificate for ["` + writerURI + `"]`, "expired", "renew it or check this machine's clock"},
		},
		{
			name: "the client does not trust the server's CA", client: writerCert, server: serverCert,
			spoil:       func(t *testing.T, r *testLink, client Files) { writeFile(t, client.PeerCA, r.clientCA.pem) },
			clientError: []string{`certificate for ["` + serverURI, "unknown authority", "peer-ca.crt must contain the CA that signs it"},
			serverLog:   []string{"remote error: tls: bad certificate"},
		},
		{
			name: "the server's certificate has expired", client: writerCert, server: certSpec{sans: []string{serverURI}, usages: forServers, expired: true},
			clientError: []string{"expired", "renew it"}, serverLog: []string{"remote error: tls: bad certificate"},
		},
		{
			name: "the server is another one", client: writerCert, server: serverCert, want: serverURI + "-blue",
			clientError: []string{"is for another name", serverURI + "-blue", `certificate for ["` + serverURI}, serverLog: []string{"remote error: tls: bad certificate"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newTestLink(t, c.server)
			f := r.clientCA.writeFiles(t, c.client, r.serverCA)
			if c.spoil != nil {
				c.spoil(t, r, f)
			}
			want := SAN(serverURI)
			if c.want != "" {
				want = c.want
			}
			ctx := testContext(t)
			for {
				err := checkHealth(t, r.dialWith(t, f, want))
				if status.Code(err) != codes.Unavailable {
					t.Fatalf("got %v, want UNAVAILABLE", err)
				}
				if text := strings.ReplaceAll(err.Error(), `\"`, `"`); containsAll(text, c.clientError) {
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("client error is %v, want %q", err, c.clientError)
				}
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if text := strings.ReplaceAll(r.log.String(), `\"`, `"`); !containsAll(text, c.serverLog) {
				t.Errorf("server log does not contain %q:\n%s", c.serverLog, text)
			}
		})
	}
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// A handshake error quotes what the peer presents, which may be of any size.
func TestTruncatesHandshakeErrors(t *testing.T) {
	for name, build := range map[string]func(*certBuilder) tls.Certificate{
		"a thousand names and a long issuer": manyNames(1000),
		"a long URI that cannot be parsed":   uriVariant(appendText(strings.Repeat("/long", 10000) + "\n")),
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestLink(t, serverCert)
			c := &certBuilder{T: t, ca: newTestCA(t, strings.Repeat("a long name ", 1000)), san: writerURI, usages: forClients}
			cert := build(c)
			conn := must(tls.Dial("tcp", r.address, &tls.Config{
				InsecureSkipVerify: true, NextProtos: []string{"h2"},
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
			}))(t)
			defer conn.Close()
			readReply(t, conn, true)
			r.log.waitFor(t, "TLS handshake failed")
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if n := len(r.log.String()); n > 2*maxErrorBytes {
				t.Errorf("log has %d bytes", n)
			}
		})
	}
}

// A certificate is verified when a connection is opened. Connections end at maxConnAge.
func TestStreamsOutliveCertificateExpiry(t *testing.T) {
	t.Parallel()
	r := newTestLink(t, serverCert)
	expiry := time.Now().Truncate(time.Second).Add(2 * time.Second)
	c := &certBuilder{T: t, ca: r.clientCA, san: writerURI, usages: forClients}
	tmpl := c.goodTemplate()
	tmpl.NotAfter = expiry
	f := r.clientCA.writeFiles(t, writerCert, r.serverCA)
	c.storeCert(c.issueCert(r.clientCA, tmpl), f)
	conn := r.dialWith(t, f, serverURI)
	openWatch(t, conn)
	<-time.After(time.Until(expiry.Add(time.Second + 100*time.Millisecond))) // NotAfter is inclusive
	if _, err := callProbe(t, conn, "Who", ""); err != nil {
		t.Errorf("the live connection ended: %v", err)
	}
	if err := checkHealth(t, r.dialWith(t, f, serverURI)); status.Code(err) != codes.Unavailable {
		t.Errorf("a new connection gets %v, want UNAVAILABLE", err)
	}
	r.log.waitFor(t, "expired")
}

// storeCert writes a certificate to the files.
func (c *certBuilder) storeCert(cert tls.Certificate, f Files) {
	c.Helper()
	var chain []byte
	for _, der := range cert.Certificate {
		chain = append(chain, encodeCert(der)...)
	}
	writeFile(c, f.Cert, chain)
	writeFile(c, f.Key, encodeKey(c, cert.PrivateKey))
}

// A client that is removed from the list loses its streams when the list is reloaded.
func TestReloadedClientListEndsStreams(t *testing.T) {
	t.Parallel()
	r := &testLink{serverCA: newTestCA(t, "server CA"), clientCA: newTestCA(t, "client CA"), reloadInterval: 10 * time.Millisecond}
	r.writeFiles(t, serverCert)
	r.start(t)
	live := openWatch(t, r.dial(t, writerCert, serverURI))
	writeFile(t, r.listPath, []byte("clients:\n- {san: "+operatorDNS+", role: operator}\n"))
	if err := live.RecvMsg(new(emptypb.Empty)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ended with %v, want PERMISSION_DENIED", err)
	}
	if reloadInterval > time.Minute/2 {
		t.Errorf("list is reloaded every %s, but the documentation promises a minute", reloadInterval)
	}
}

// A client cannot resume an earlier session after its CA was removed.
func TestSessionsDoNotSurviveCARemoval(t *testing.T) {
	t.Parallel()
	r := newTestLink(t, serverCert)
	cfg := &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"}, ClientSessionCache: tls.NewLRUClientSessionCache(1),
		Certificates: []tls.Certificate{r.clientCert(t, writerCert)},
	}
	connect := func() error {
		conn := must(tls.Dial("tcp", r.address, cfg))(t)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	if err := connect(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, r.files.PeerCA, newTestCA(t, "client CA").pem)
	r.server.id.reload()
	if err := connect(); err == nil {
		t.Error("accepted with its previous session")
	}
	r.log.waitFor(t, "unknown authority")
}

// An invalid certificate does not replace a valid one. It is used once it becomes valid.
func TestKeepsPreviousCertificateInsteadOfInvalidOne(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"server", "client"} {
		for name, alter := range map[string]func(*x509.Certificate){
			"expired":           func(x *x509.Certificate) { x.NotAfter = timeAgo(time.Minute) },
			"not valid yet":     func(x *x509.Certificate) { x.NotBefore = timeAgo(-time.Hour) },
			"a weak RSA key":    nil,
			"valid in a moment": func(x *x509.Certificate) { x.NotBefore = timeAgo(-2 * time.Second).Truncate(time.Second) },
		} {
			t.Run(fmt.Sprintf("%s: %s", end, name), func(t *testing.T) {
				t.Parallel()
				r := newTestLink(t, serverCert)
				f := r.clientCA.writeFiles(t, writerCert, r.serverCA)
				client := must(NewClient(r.clientConfig(f), r.address, serverURI))(t)
				files, own, metrics := f, client.id, r.clientMetrics
				c := &certBuilder{T: t, ca: r.clientCA, san: writerURI, usages: forClients}
				if end == "server" {
					files, own, metrics = r.files, r.server.id, r.metrics
					c = &certBuilder{T: t, ca: r.serverCA, san: serverURI, usages: forServers}
				}
				tmpl := c.goodTemplate()
				if alter != nil {
					alter(tmpl)
					c.storeCert(c.issueCert(c.ca, tmpl), files)
				} else {
					c.storeCert(c.issueForKey(c.ca, tmpl, weakKey(t)), files)
				}
				own.reload()
				if got := reloadErrors(t, metrics, "cert"); got != 1 {
					t.Errorf("counted %v errors, want 1", got)
				}
				conn := r.dialClient(t, client)
				if err := checkHealth(t, conn); err != nil {
					t.Errorf("previous certificate is not in use: %v", err)
				}
				if name == "valid in a moment" {
					<-time.After(time.Until(tmpl.NotBefore))
					own.reload()
					certPEM := must(os.ReadFile(files.Cert))(t)
					if pair := must(
						tls.X509KeyPair(certPEM, must(os.ReadFile(files.Key))(t)),
					)(
						t,
					); end == "server" &&
						!r.server.id.leaf.Load().Leaf.Equal(pair.Leaf) {
						t.Error("certificate not in use after it became valid")
					}
				}
			})
		}
	}
}
