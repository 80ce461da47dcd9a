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
func TestBothEndsSayWhatIsWrong(t *testing.T) {
	told := []string{"bad certificate", `the certificate for ["` + writerURI + `"]`, "the server's log has the reason"}
	for _, c := range []struct {
		name                   string
		server                 leaf
		client                 leaf
		spoil                  func(t *testing.T, r *rig, client Files)
		want                   SAN
		clientSays, serverSays []string
	}{
		{
			name: "the server does not know the client's CA", client: goodWriter, server: goodServer, clientSays: told,
			spoil: func(t *testing.T, r *rig, client Files) {
				newAuthority(t, "client CA").renew(t, goodWriter, client)
			},
			serverSays: []string{`the certificate for ["` + writerURI + `"]`, "unknown authority", "peer-ca.crt must hold the CA that signs it"},
		},
		{
			name: "the client's certificate has expired", client: leaf{sans: []string{writerURI}, usages: forClients, expired: true}, server: goodServer,
			clientSays: told, serverSays: []string{`the certificate for ["` + writerURI + `"]`, "expired", "renew it, or see to this machine's clock"},
		},
		{
			name: "the client does not know the server's CA", client: goodWriter, server: goodServer,
			spoil:      func(t *testing.T, r *rig, client Files) { write(t, client.PeerCA, r.clientCA.pem) },
			clientSays: []string{`the certificate for ["` + serverURI, "unknown authority", "peer-ca.crt must hold the CA that signs it"},
			serverSays: []string{"remote error: tls: bad certificate"},
		},
		{
			name: "the server's certificate has expired", client: goodWriter, server: leaf{sans: []string{serverURI}, usages: forServers, expired: true},
			clientSays: []string{"expired", "renew it"}, serverSays: []string{"remote error: tls: bad certificate"},
		},
		{
			name: "the server is another one", client: goodWriter, server: goodServer, want: serverURI + "-blue",
			clientSays: []string{"is for another name", serverURI + "-blue", `the certificate for ["` + serverURI}, serverSays: []string{"remote error: tls: bad certificate"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.server)
			f := r.clientCA.files(t, c.client, r.serverCA)
			if c.spoil != nil {
				c.spoil(t, r, f)
			}
			want := SAN(serverURI)
			if c.want != "" {
				want = c.want
			}
			ctx := deadline(t)
			for {
				err := checkHealth(t, r.dialWith(t, f, want))
				if status.Code(err) != codes.Unavailable {
					t.Fatalf("got %v, want UNAVAILABLE", err)
				}
				if text := strings.ReplaceAll(err.Error(), `\"`, `"`); sayAll(text, c.clientSays) {
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("the client says %v, want %q", err, c.clientSays)
				}
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if text := strings.ReplaceAll(r.log.String(), `\"`, `"`); !sayAll(text, c.serverSays) {
				t.Errorf("the server does not say %q:\n%s", c.serverSays, text)
			}
		})
	}
}

func sayAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// What a peer presents is quoted when it is refused, and none of it is of our making.
func TestARefusalIsShort(t *testing.T) {
	for name, is := range map[string]func(*casting) tls.Certificate{
		"a thousand names and a long issuer":  manyNames(1000),
		"a long URI that cannot even be read": uri(add(strings.Repeat("/long", 10000) + "\n")),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, goodServer)
			c := &casting{T: t, ca: newAuthority(t, strings.Repeat("a long name ", 1000)), san: writerURI, usages: forClients}
			cert := is(c)
			conn := must(tls.Dial("tcp", r.address, &tls.Config{
				InsecureSkipVerify: true, NextProtos: []string{"h2"},
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
			}))(t)
			defer conn.Close()
			hear(t, conn, true)
			r.log.await(t, "TLS handshake refused")
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if n := len(r.log.String()); n > 2*maxRefusal {
				t.Errorf("the log has %d bytes", n)
			}
		})
	}
}

// A certificate is judged when a connection is made. One that lives on ends with its age at the latest.
func TestAStreamOutlivesTheCertificateAndNothingNewBegins(t *testing.T) {
	t.Parallel()
	r := newRig(t, goodServer)
	ends := time.Now().Truncate(time.Second).Add(2 * time.Second)
	c := &casting{T: t, ca: r.clientCA, san: writerURI, usages: forClients}
	tmpl := c.good()
	tmpl.NotAfter = ends
	f := r.clientCA.files(t, goodWriter, r.serverCA)
	c.store(c.issue(r.clientCA, tmpl), f)
	conn := r.dialWith(t, f, serverURI)
	watch(t, conn)
	<-time.After(time.Until(ends.Add(time.Second + 100*time.Millisecond))) // the last second counts
	if _, err := call(t, conn, "Who", ""); err != nil {
		t.Errorf("the live connection ended: %v", err)
	}
	if err := checkHealth(t, r.dialWith(t, f, serverURI)); status.Code(err) != codes.Unavailable {
		t.Errorf("a new connection gets %v, want UNAVAILABLE", err)
	}
	r.log.await(t, "expired")
}

// store puts a certificate into the files.
func (c *casting) store(cert tls.Certificate, f Files) {
	c.Helper()
	var chain []byte
	for _, der := range cert.Certificate {
		chain = append(chain, encoded(der)...)
	}
	write(c, f.Cert, chain)
	write(c, f.Key, encodedKey(c, cert.PrivateKey))
}

// Who is taken off the list is out as soon as the list is re-read, by itself.
func TestTheListIsReReadAndEndsLiveStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t, goodServer)
	r.server.reloader.every = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	live := watch(t, r.dial(t, goodWriter, serverURI))
	write(t, r.list, []byte("clients:\n- {san: "+personDNS+", role: operator}\n"))
	if err := live.RecvMsg(new(emptypb.Empty)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ended with %v, want PERMISSION_DENIED", err)
	}
	if defaultRefresh > time.Minute/2 {
		t.Errorf("the list is read every %s: out within a minute is what the documentation says", defaultRefresh)
	}
}

// Whose CA is gone cannot come back by what it kept of an earlier session.
func TestASessionFromBeforeDoesNotOutliveItsCA(t *testing.T) {
	t.Parallel()
	r := newRig(t, goodServer)
	cfg := &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"}, ClientSessionCache: tls.NewLRUClientSessionCache(1),
		Certificates: []tls.Certificate{r.pair(t, goodWriter)},
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
	write(t, r.files.PeerCA, newAuthority(t, "client CA").pem)
	r.server.reloader.reload()
	if err := knock(); err == nil {
		t.Error("let in by its old session")
	}
	r.log.await(t, "unknown authority")
}

// A certificate that nobody would accept does not take the place of one that is in order, and
// is taken up when its time comes.
func TestACertificateOutOfItsTimeIsNotTakenUp(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"server", "client"} {
		for name, alter := range map[string]func(*x509.Certificate){
			"expired":         func(x *x509.Certificate) { x.NotAfter = ago(time.Minute) },
			"not valid yet":   func(x *x509.Certificate) { x.NotBefore = ago(-time.Hour) },
			"a weak RSA key":  nil,
			"its time begins": func(x *x509.Certificate) { x.NotBefore = ago(-2 * time.Second).Truncate(time.Second) },
		} {
			t.Run(fmt.Sprintf("%s: %s", end, name), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, goodServer)
				f := r.clientCA.files(t, goodWriter, r.serverCA)
				client := must(NewClient(r.clientConfig(f), serverURI))(t)
				files, reloads := f, client.reloader
				c := &casting{T: t, ca: r.clientCA, san: writerURI, usages: forClients}
				if end == "server" {
					files, reloads = r.files, r.server.reloader
					c = &casting{T: t, ca: r.serverCA, san: serverURI, usages: forServers}
				}
				tmpl := c.good()
				if alter != nil {
					alter(tmpl)
					c.store(c.issue(c.ca, tmpl), files)
				} else {
					c.store(c.keyed(c.ca, tmpl, weakKey(t)), files)
				}
				reloads.reload()
				if got := testutil.ToFloat64(reloads.errors.WithLabelValues("cert")); got != 1 {
					t.Errorf("counted %v errors, want 1", got)
				}
				conn := r.connect(t, client.DialOptions()...)
				if err := checkHealth(t, conn); err != nil {
					t.Errorf("the old certificate is not in use: %v", err)
				}
				if name == "its time begins" {
					<-time.After(time.Until(tmpl.NotBefore))
					reloads.reload()
					certPEM := must(os.ReadFile(files.Cert))(t)
					if pair := must(tls.X509KeyPair(certPEM, must(os.ReadFile(files.Key))(t)))(t); end == "server" && !r.server.id.leaf.Load().Leaf.Equal(pair.Leaf) {
						t.Error("it is not taken up when its time has come")
					}
				}
			})
		}
	}
}
