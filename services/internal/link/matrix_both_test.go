package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// With both ends ours, the one who is refused is told which certificate is meant, and the one who
// refuses says of whom and why. A refused client may also only see its connection end: so it tries again.
func TestBothEndsExplainHandshakeErrors(t *testing.T) {
	told := []string{"bad certificate", `the certificate for ["` + writerURI + `"]`, "the server's log has the reason"}
	for _, c := range []struct {
		name                   string
		server                 certSpec
		client                 certSpec
		spoil                  func(t *testing.T, r *testLink, client Files)
		want                   SAN
		clientSays, serverSays []string
	}{
		{
			name: "the server does not know the client's CA", client: writerCert, server: serverCert, clientSays: told,
			spoil: func(t *testing.T, r *testLink, client Files) {
				newTestCA(t, "client CA").renewFiles(t, writerCert, client)
			},
			serverSays: []string{`the certificate for ["` + writerURI + `"]`, "unknown authority", "peer-ca.crt must hold the CA that signs it"},
		},
		{
			name: "the client's certificate has expired", client: certSpec{sans: []string{writerURI}, usages: forClients, expired: true}, server: serverCert,
			clientSays: told, serverSays: []string{`the certificate for ["` + writerURI + `"]`, "expired", "renew it, or see to this machine's clock"},
		},
		{
			name: "the client does not know the server's CA", client: writerCert, server: serverCert,
			spoil:      func(t *testing.T, r *testLink, client Files) { writeFile(t, client.PeerCA, r.clientCA.pem) },
			clientSays: []string{`the certificate for ["` + serverURI, "unknown authority", "peer-ca.crt must hold the CA that signs it"},
			serverSays: []string{"remote error: tls: bad certificate"},
		},
		{
			name: "the server's certificate has expired", client: writerCert, server: certSpec{sans: []string{serverURI}, usages: forServers, expired: true},
			clientSays: []string{"expired", "renew it"}, serverSays: []string{"remote error: tls: bad certificate"},
		},
		{
			name: "the server is another one", client: writerCert, server: serverCert, want: serverURI + "-blue",
			clientSays: []string{"is for another name", serverURI + "-blue", `the certificate for ["` + serverURI}, serverSays: []string{"remote error: tls: bad certificate"},
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
				if text := strings.ReplaceAll(err.Error(), `\"`, `"`); containsAll(text, c.clientSays) {
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("the client says %v, want %q", err, c.clientSays)
				}
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if text := strings.ReplaceAll(r.log.String(), `\"`, `"`); !containsAll(text, c.serverSays) {
				t.Errorf("the server does not say %q:\n%s", c.serverSays, text)
			}
		})
	}
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// What a peer presents is quoted when it is refused, and none of it is of our making.
func TestTruncatesHandshakeErrors(t *testing.T) {
	for name, is := range map[string]func(*certBuilder) tls.Certificate{
		"a thousand names and a long issuer":  manyNames(1000),
		"a long URI that cannot even be read": uriVariant(appendText(strings.Repeat("/long", 10000) + "\n")),
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestLink(t, serverCert)
			c := &certBuilder{T: t, ca: newTestCA(t, strings.Repeat("a long name ", 1000)), san: writerURI, usages: forClients}
			cert := is(c)
			conn := must(tls.Dial("tcp", r.address, &tls.Config{
				InsecureSkipVerify: true, NextProtos: []string{"h2"},
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
			}))(t)
			defer conn.Close()
			readReply(t, conn, true)
			r.log.waitFor(t, "TLS handshake refused")
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if n := len(r.log.String()); n > 2*maxErrorBytes {
				t.Errorf("the log has %d bytes", n)
			}
		})
	}
}

// A certificate is judged when a connection is made. One that lives on ends with its age at the latest.
func TestStreamsOutliveCertificateExpiry(t *testing.T) {
	t.Parallel()
	r := newTestLink(t, serverCert)
	ends := time.Now().Truncate(time.Second).Add(2 * time.Second)
	c := &certBuilder{T: t, ca: r.clientCA, san: writerURI, usages: forClients}
	tmpl := c.goodTemplate()
	tmpl.NotAfter = ends
	f := r.clientCA.writeFiles(t, writerCert, r.serverCA)
	c.storeCert(c.issueCert(r.clientCA, tmpl), f)
	conn := r.dialWith(t, f, serverURI)
	openWatch(t, conn)
	<-time.After(time.Until(ends.Add(time.Second + 100*time.Millisecond))) // the last second counts
	if _, err := callProbe(t, conn, "Who", ""); err != nil {
		t.Errorf("the live connection ended: %v", err)
	}
	if err := checkHealth(t, r.dialWith(t, f, serverURI)); status.Code(err) != codes.Unavailable {
		t.Errorf("a new connection gets %v, want UNAVAILABLE", err)
	}
	r.log.waitFor(t, "expired")
}

// storeCert puts a certificate into the files.
func (c *certBuilder) storeCert(cert tls.Certificate, f Files) {
	c.Helper()
	var chain []byte
	for _, der := range cert.Certificate {
		chain = append(chain, encodeCert(der)...)
	}
	writeFile(c, f.Cert, chain)
	writeFile(c, f.Key, encodeKey(c, cert.PrivateKey))
}

// Who is taken off the list is out as soon as the list is re-read, by itself.
func TestReloadedClientListEndsStreams(t *testing.T) {
	t.Parallel()
	r := newTestLink(t, serverCert)
	r.server.reloader.interval = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	live := openWatch(t, r.dial(t, writerCert, serverURI))
	writeFile(t, r.listPath, []byte("clients:\n- {san: "+operatorDNS+", role: operator}\n"))
	if err := live.RecvMsg(new(emptypb.Empty)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ended with %v, want PERMISSION_DENIED", err)
	}
	if defaultRefreshInterval > time.Minute/2 {
		t.Errorf("the list is read every %s: out within a minute is what the documentation says", defaultRefreshInterval)
	}
}

// Whose CA is gone cannot come back by what it kept of an earlier session.
func TestSessionsDoNotSurviveCARemoval(t *testing.T) {
	t.Parallel()
	r := newTestLink(t, serverCert)
	cfg := &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"}, ClientSessionCache: tls.NewLRUClientSessionCache(1),
		Certificates: []tls.Certificate{r.clientCert(t, writerCert)},
	}
	knock := func() error {
		conn := must(tls.Dial("tcp", r.address, cfg))(t)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	if err := knock(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, r.files.PeerCA, newTestCA(t, "client CA").pem)
	r.server.reloader.reloadAll()
	if err := knock(); err == nil {
		t.Error("let in by its old session")
	}
	r.log.waitFor(t, "unknown authority")
}

// A certificate that nobody would accept does not take the place of one that is in order, and
// is taken up when its time comes.
func TestKeepsPreviousCertificateInsteadOfInvalidOne(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"server", "client"} {
		for name, alter := range map[string]func(*x509.Certificate){
			"expired":         func(x *x509.Certificate) { x.NotAfter = timeAgo(time.Minute) },
			"not valid yet":   func(x *x509.Certificate) { x.NotBefore = timeAgo(-time.Hour) },
			"a weak RSA key":  nil,
			"its time begins": func(x *x509.Certificate) { x.NotBefore = timeAgo(-2 * time.Second).Truncate(time.Second) },
		} {
			t.Run(fmt.Sprintf("%s: %s", end, name), func(t *testing.T) {
				t.Parallel()
				r := newTestLink(t, serverCert)
				f := r.clientCA.writeFiles(t, writerCert, r.serverCA)
				client := must(NewClient(r.clientConfig(f), serverURI))(t)
				files, reloads := f, client.reloader
				c := &certBuilder{T: t, ca: r.clientCA, san: writerURI, usages: forClients}
				if end == "server" {
					files, reloads = r.files, r.server.reloader
					c = &certBuilder{T: t, ca: r.serverCA, san: serverURI, usages: forServers}
				}
				tmpl := c.goodTemplate()
				if alter != nil {
					alter(tmpl)
					c.storeCert(c.issueCert(c.ca, tmpl), files)
				} else {
					c.storeCert(c.issueForKey(c.ca, tmpl, weakKey(t)), files)
				}
				reloads.reloadAll()
				if got := testutil.ToFloat64(reloads.errors.WithLabelValues("cert")); got != 1 {
					t.Errorf("counted %v errors, want 1", got)
				}
				conn := r.connect(t, client.DialOptions()...)
				if err := checkHealth(t, conn); err != nil {
					t.Errorf("the old certificate is not in use: %v", err)
				}
				if name == "its time begins" {
					<-time.After(time.Until(tmpl.NotBefore))
					reloads.reloadAll()
					certPEM := must(os.ReadFile(files.Cert))(t)
					if pair := must(tls.X509KeyPair(certPEM, must(os.ReadFile(files.Key))(t)))(t); end == "server" && !r.server.id.leaf.Load().Leaf.Equal(pair.Leaf) {
						t.Error("it is not taken up when its time has come")
					}
				}
			})
		}
	}
}
