package link

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

var (
	goodServer = leaf{sans: []string{serverURI, serverDNS}, usages: forServers}
	goodWriter = leaf{sans: []string{writerURI}, usages: forClients}
)

func TestTheClientAcceptsOnlyTheServerItWants(t *testing.T) {
	for _, c := range []struct {
		name   string
		server leaf
		want   SAN
		refuse string // in the error; empty: accepted
	}{
		{"a URI SAN", goodServer, serverURI, ""},
		{"a DNS SAN", goodServer, serverDNS, ""},
		{"another URI", goodServer, serverURI + "-blue", "want"},
		{"the beginning of the URI", goodServer, "spiffe://example.org/slicefeed", "want"},
		{"another DNS name", goodServer, "example", "want"},
		{"a certificate of a client", leaf{sans: []string{serverURI}, usages: forServers}, writerURI, "want"},
		{"an expired certificate", leaf{sans: []string{serverURI}, usages: forServers, expired: true}, serverURI, "expired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.server)
			expect(t, checkHealth(t, r.dial(t, goodWriter, c.want)), c.refuse)
		})
	}
}

func TestTheClientRefusesAServerOfAnotherCA(t *testing.T) {
	r := newRig(t, goodServer)
	f := r.clientCA.files(t, goodWriter, newAuthority(t, "another CA"))
	expect(t, checkHealth(t, r.dialWith(t, f, serverURI)), "unknown authority")
}

func TestTheClientRefusesAServerWithoutTheUsage(t *testing.T) {
	for name, usages := range map[string][]x509.ExtKeyUsage{"none": nil, "clientAuth": forClients, "any": {x509.ExtKeyUsageAny}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, goodServer)
			certPEM, keyPEM := r.serverCA.issue(t, leaf{sans: []string{serverURI}, usages: usages})
			pair := must(tls.X509KeyPair(certPEM, keyPEM))(t)
			r.server.reloader.parts = nil
			r.server.id.leaf.Store(&pair)
			want := "not for server auth"
			if name == "clientAuth" {
				want = "incompatible key usage"
			}
			expect(t, checkHealth(t, r.dial(t, goodWriter, serverURI)), want)
		})
	}
}

func TestTheServerAcceptsOnlyCertificatesOfItsClients(t *testing.T) {
	// with gives the client a certificate of the rig's client CA, or of another one.
	with := func(l leaf, ca func(*rig) *authority, maxVersion uint16) func(*testing.T, *rig) credentials.TransportCredentials {
		return func(t *testing.T, r *rig) credentials.TransportCredentials {
			certPEM, keyPEM := ca(r).issue(t, l)
			return credentials.NewTLS(&tls.Config{
				InsecureSkipVerify: true, MaxVersion: maxVersion,
				Certificates: []tls.Certificate{must(tls.X509KeyPair(certPEM, keyPEM))(t)},
			})
		}
	}
	clientCA := func(r *rig) *authority { return r.clientCA }
	serverCA := func(r *rig) *authority { return r.serverCA }
	otherCA := func(*rig) *authority { return newAuthority(t, "client CA") }
	for _, c := range []struct {
		name   string
		creds  func(*testing.T, *rig) credentials.TransportCredentials
		logged string // empty: accepted
	}{
		{"a good one", with(goodWriter, clientCA, 0), ""},
		{"an unlisted client, for health", with(stranger, clientCA, 0), "this client is not on the list"},
		{"another CA", with(goodWriter, otherCA, 0), "unknown authority"},
		{"the server's own CA", with(goodWriter, serverCA, 0), "unknown authority"},
		{"an expired certificate", with(leaf{sans: []string{writerURI}, usages: forClients, expired: true}, clientCA, 0), "expired"},
		{"no usage at all", with(leaf{sans: []string{writerURI}}, clientCA, 0), "not for client auth"},
		{"the usage of a server", with(leaf{sans: []string{writerURI}, usages: forServers}, clientCA, 0), "incompatible key usage"},
		{"no certificate", func(*testing.T, *rig) credentials.TransportCredentials {
			return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
		}, "didn't provide a certificate"},
		{"TLS 1.2", with(goodWriter, clientCA, tls.VersionTLS12), "unsupported versions"},
		{"plaintext", func(*testing.T, *rig) credentials.TransportCredentials { return insecure.NewCredentials() }, "does not look like a TLS handshake"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, goodServer)
			err := checkHealth(t, r.connect(t, grpc.WithTransportCredentials(c.creds(t, r))))
			if c.logged == "" {
				expect(t, err, "")
				return
			}
			if status.Code(err) != codes.Unavailable {
				t.Errorf("got %v, want UNAVAILABLE", err)
			}
			r.log.await(t, c.logged)
			if testutil.ToFloat64(r.server.creds.failed) == 0 {
				t.Error("the refusal was not counted")
			}
		})
	}
}

func TestTheClientRefusesTLS12(t *testing.T) {
	r := newRig(t, goodServer)
	certPEM, keyPEM := r.serverCA.issue(t, goodServer)
	l := must(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{must(tls.X509KeyPair(certPEM, keyPEM))(t)},
	}))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	r.address = l.Addr().String()
	expect(t, checkHealth(t, r.dial(t, goodWriter, serverURI)), "protocol version")
}

// A resumed session would skip the check of the certificate against the present CAs.
func TestSessionsAreNotResumed(t *testing.T) {
	r := newRig(t, goodServer)
	certPEM, keyPEM := r.clientCA.issue(t, goodWriter)
	cfg := &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"}, ClientSessionCache: tls.NewLRUClientSessionCache(1),
		Certificates: []tls.Certificate{must(tls.X509KeyPair(certPEM, keyPEM))(t)},
	}
	for range 2 {
		conn := must(tls.Dial("tcp", r.address, cfg))(t)
		must(conn.Read(make([]byte, 1)))(t) // the server's first frame, after its session ticket
		if conn.ConnectionState().DidResume {
			t.Error("the server resumed a session")
		}
		conn.Close()
	}
}

func TestANewLeafIsUsedWithoutARestart(t *testing.T) {
	r := newRig(t, goodServer)
	clientFiles := r.clientCA.files(t, goodWriter, r.serverCA)
	old := r.dialWith(t, clientFiles, serverURI)
	before := serverSerial(t, old)

	r.serverCA.renew(t, goodServer, r.files)
	r.server.reloader.reload()

	if after := serverSerial(t, r.dialWith(t, clientFiles, serverURI)); after == before {
		t.Error("a new connection still sees the old certificate")
	}
	if again := serverSerial(t, old); again != before {
		t.Error("the live connection was not left alone")
	}
	leaf := r.server.id.leaf.Load().Leaf
	want := "slicefeed_inventory_certificate_expiry_timestamp_seconds"
	if got := gauge(t, r.metrics, want); got != float64(leaf.NotAfter.Unix()) {
		t.Errorf("%s is %v, want %v", want, got, leaf.NotAfter.Unix())
	}
}

func TestANewPeerCAIsUsedWithoutARestart(t *testing.T) {
	r := newRig(t, goodServer)
	oldCA, newCA := r.clientCA, newAuthority(t, "client CA")
	dial := func(ca *authority) error {
		r.clientCA = ca
		return checkHealth(t, r.dial(t, goodWriter, serverURI))
	}
	step := func(what string, bundle []byte, wantOld, wantNew bool) {
		t.Helper()
		write(t, r.files.PeerCA, bundle)
		r.server.reloader.reload()
		if err := dial(oldCA); (err == nil) != wantOld {
			t.Errorf("%s: a client of the old CA gets %v", what, err)
		}
		if err := dial(newCA); (err == nil) != wantNew {
			t.Errorf("%s: a client of the new CA gets %v", what, err)
		}
	}
	step("old only", oldCA.pem, true, false)
	step("both", append(append([]byte{}, oldCA.pem...), newCA.pem...), true, true)
	step("new only", newCA.pem, false, true)
}

func TestRubbishKeepsTheOldInUseAndIsCounted(t *testing.T) {
	for _, c := range []struct {
		file  string // label of the metric
		spoil func(*testing.T, *rig)
		says  string
	}{
		{"ca", func(t *testing.T, r *rig) { write(t, r.files.PeerCA, []byte("rubbish")) }, "no certificate in PEM form"},
		{"ca", func(t *testing.T, r *rig) { write(t, r.files.PeerCA, nil) }, "no certificate in PEM form"},
		{"ca", func(t *testing.T, r *rig) {
			write(t, r.files.PeerCA, append(newAuthority(t, "x").pem, r.clientCA.pem[:100]...))
		}, "not whole"},
		{"ca", func(t *testing.T, r *rig) { os.Remove(r.files.PeerCA) }, "no such file"},
		{"cert", func(t *testing.T, r *rig) { write(t, r.files.Cert, []byte("rubbish")) }, "no certificate in PEM form"},
		{"cert", func(t *testing.T, r *rig) { r.serverCA.renew(t, leaf{sans: []string{serverURI}}, r.files) }, "does not include"},
		{"cert", func(t *testing.T, r *rig) { r.serverCA.renew(t, leaf{usages: forServers}, r.files) }, "no URI or DNS SAN"},
		{"key", func(t *testing.T, r *rig) { write(t, r.files.Key, []byte("rubbish")) }, r509},
		{"key", func(t *testing.T, r *rig) {
			_, keyPEM := r.serverCA.issue(t, goodServer)
			write(t, r.files.Key, keyPEM)
		}, "does not match"},
		{"clients", func(t *testing.T, r *rig) { write(t, r.list, []byte("clients: []")) }, "lists no client"},
	} {
		t.Run(c.file+" "+c.says, func(t *testing.T) {
			r := newRig(t, goodServer)
			c.spoil(t, r)
			r.server.reloader.reload()
			r.server.reloader.reload()
			if got := testutil.ToFloat64(r.server.reloader.errors.WithLabelValues(c.file)); got != 2 {
				t.Errorf("counted %v errors of %q, want 2", got, c.file)
			}
			if n := strings.Count(r.log.String(), "cannot be used"); n != 1 || !strings.Contains(r.log.String(), c.says) {
				t.Errorf("want one line that says %q:\n%s", c.says, r.log)
			}
			if strings.Contains(r.log.String(), "PRIVATE KEY") {
				t.Error("the log holds a private key")
			}
			if _, err := call(t, r.dial(t, goodWriter, serverURI), "Who", ""); err != nil {
				t.Errorf("the old content is not in use: %v", err)
			}
		})
	}
}

const r509 = "failed to find any PEM data in key input"

func TestEveryBadFileIsNamedAtTheStart(t *testing.T) {
	ca := newAuthority(t, "CA")
	f := ca.files(t, goodServer, ca)
	write(t, f.Cert, []byte("rubbish"))
	f.PeerCA = filepath.Join(t.TempDir(), "missing.crt")
	cfg := (&rig{log: &journal{}, metrics: prometheus.NewRegistry()}).config("inventory", "feed", f)
	_, err := NewServer(cfg, filepath.Join(t.TempDir(), "nobody.yaml"))
	if err == nil {
		t.Fatal("started with bad files")
	}
	for _, want := range []string{f.Cert + ": holds no certificate", "missing.crt: no such file", "nobody.yaml: no such file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestFilesAreReReadWhileRunning(t *testing.T) {
	r := newRig(t, goodServer)
	loaded := make(chan struct{})
	r.server.reloader.every = 1
	r.server.reloader.add("probe", func() (bool, error) {
		select {
		case loaded <- struct{}{}:
		case <-t.Context().Done():
		}
		return false, nil
	})
	done := make(chan error, 1)
	go func() { done <- r.server.Run(t.Context()) }()
	t.Cleanup(func() { <-done }) // the test's context is done before its cleanups
	<-loaded
	r.serverCA.renew(t, goodServer, r.files)
	<-loaded // this round may have begun before the change,
	<-loaded // this one has not
	want := must(os.ReadFile(r.files.Cert))(t)
	pair := r.server.id.leaf.Load()
	if block := must(parseCertificates(want))(t)[0]; !block.Equal(pair.Leaf) {
		t.Error("the new certificate is not in use")
	}
}

func expect(t *testing.T, err error, refused string) {
	t.Helper()
	switch {
	case refused == "" && err != nil:
		t.Errorf("refused: %v", err)
	case refused != "" && err == nil:
		t.Errorf("accepted, want an error with %q", refused)
	case refused != "" && !strings.Contains(err.Error(), refused):
		t.Errorf("got %v, want an error with %q", err, refused)
	}
}

func serverSerial(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	var p peer.Peer
	if err := checkHealth(t, conn, grpc.Peer(&p)); err != nil {
		t.Fatal(err)
	}
	return p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].SerialNumber.String()
}

func gauge(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	for _, f := range must(g.Gather())(t) {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
