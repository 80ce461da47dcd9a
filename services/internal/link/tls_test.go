package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

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
	serverCert = certSpec{sans: []string{serverURI, serverDNS}, usages: forServers}
	writerCert = certSpec{sans: []string{writerURI}, usages: forClients}
)

func TestClientVerifiesServerName(t *testing.T) {
	for _, c := range []struct {
		name    string
		server  certSpec
		want    SAN
		wantErr string // empty: accepted
	}{
		{"a URI SAN", serverCert, serverURI, ""},
		{"a DNS SAN", serverCert, serverDNS, ""},
		{"another URI", serverCert, serverURI + "-blue", "want"},
		{"the beginning of the URI", serverCert, "spiffe://example.org/slicefeed", "want"},
		{"another DNS name", serverCert, "example", "want"},
		{"a certificate of a client", certSpec{sans: []string{serverURI}, usages: forServers}, writerURI, "want"},
		{"an expired certificate", certSpec{sans: []string{serverURI}, usages: forServers, expired: true}, serverURI, "expired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTestLink(t, c.server)
			expectError(t, checkHealth(t, r.dial(t, writerCert, c.want)), c.wantErr)
		})
	}
}

func TestClientRejectsUnknownCA(t *testing.T) {
	r := newTestLink(t, serverCert)
	f := r.clientCA.writeFiles(t, writerCert, newTestCA(t, "another CA"))
	expectError(t, checkHealth(t, r.dialWith(t, f, serverURI)), "unknown authority")
}

func TestClientRequiresServerUsage(t *testing.T) {
	for name, usages := range map[string][]x509.ExtKeyUsage{"none": nil, "clientAuth": forClients, "any": {x509.ExtKeyUsageAny}} {
		t.Run(name, func(t *testing.T) {
			r := &testLink{serverCA: newTestCA(t, "server CA"), clientCA: newTestCA(t, "client CA"), log: &testLog{}}
			certPEM, keyPEM := r.serverCA.issueCert(t, certSpec{sans: []string{serverURI}, usages: usages})
			r.address = serveHealth(t, grpc.NewServer(), tls.NewListener(listenLocal(t), &tls.Config{
				NextProtos: []string{
					"h2",
				},
				ClientAuth:   tls.RequireAnyClientCert,
				Certificates: []tls.Certificate{must(tls.X509KeyPair(certPEM, keyPEM))(t)},
			}))
			want := "not for server auth"
			if name == "clientAuth" {
				want = "incompatible key usage"
			}
			expectError(t, checkHealth(t, r.dial(t, writerCert, serverURI)), want)
		})
	}
}

func TestServerVerifiesClientCertificates(t *testing.T) {
	// issuedBy returns the credentials of a client with a certificate from a CA.
	issuedBy := func(spec certSpec, ca func(*testLink) *testCA, maxVersion uint16) func(*testing.T, *testLink) credentials.TransportCredentials {
		return func(t *testing.T, r *testLink) credentials.TransportCredentials {
			certPEM, keyPEM := ca(r).issueCert(t, spec)
			return credentials.NewTLS(&tls.Config{
				InsecureSkipVerify: true, MaxVersion: maxVersion,
				Certificates: []tls.Certificate{must(tls.X509KeyPair(certPEM, keyPEM))(t)},
			})
		}
	}
	clientCA := func(r *testLink) *testCA { return r.clientCA }
	serverCA := func(r *testLink) *testCA { return r.serverCA }
	otherCA := func(*testLink) *testCA { return newTestCA(t, "client CA") }
	for _, c := range []struct {
		name   string
		creds  func(*testing.T, *testLink) credentials.TransportCredentials
		logged string // empty: accepted
	}{
		{"a good one", issuedBy(writerCert, clientCA, 0), ""},
		{"an unlisted client, for health", issuedBy(unlistedCert, clientCA, 0), "client is not listed"},
		{"another CA", issuedBy(writerCert, otherCA, 0), "unknown authority"},
		{"the server's own CA", issuedBy(writerCert, serverCA, 0), "unknown authority"},
		{"an expired certificate", issuedBy(certSpec{sans: []string{writerURI}, usages: forClients, expired: true}, clientCA, 0), "expired"},
		{"no usage at all", issuedBy(certSpec{sans: []string{writerURI}}, clientCA, 0), "not for client auth"},
		{"the usage of a server", issuedBy(certSpec{sans: []string{writerURI}, usages: forServers}, clientCA, 0), "incompatible key usage"},
		{"no certificate", func(*testing.T, *testLink) credentials.TransportCredentials {
			return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
		}, "didn't provide a certificate"},
		{"TLS 1.2", issuedBy(writerCert, clientCA, tls.VersionTLS12), "unsupported versions"},
		{"plaintext", func(*testing.T, *testLink) credentials.TransportCredentials { return insecure.NewCredentials() }, "does not look like a TLS handshake"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTestLink(t, serverCert)
			err := checkHealth(t, r.connect(t, grpc.WithTransportCredentials(c.creds(t, r))))
			if c.logged == "" {
				expectError(t, err, "")
				return
			}
			if status.Code(err) != codes.Unavailable {
				t.Errorf("got %v, want UNAVAILABLE", err)
			}
			r.log.waitFor(t, c.logged)
			if testutil.ToFloat64(r.server.handshaker.failures) == 0 {
				t.Error("failure was not counted")
			}
		})
	}
}

func TestClientRejectsTLS12(t *testing.T) {
	r := newTestLink(t, serverCert)
	certPEM, keyPEM := r.serverCA.issueCert(t, serverCert)
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
	expectError(t, checkHealth(t, r.dial(t, writerCert, serverURI)), "protocol version")
}

// A resumed session would skip the verification with the current CAs.
func TestDoesNotResumeSessions(t *testing.T) {
	r := newTestLink(t, serverCert)
	certPEM, keyPEM := r.clientCA.issueCert(t, writerCert)
	cfg := &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"}, ClientSessionCache: tls.NewLRUClientSessionCache(1),
		Certificates: []tls.Certificate{must(tls.X509KeyPair(certPEM, keyPEM))(t)},
	}
	for range 2 {
		conn := must(tls.Dial("tcp", r.address, cfg))(t)
		must(conn.Read(make([]byte, 1)))(t) // the server's first frame follows its session ticket
		if conn.ConnectionState().DidResume {
			t.Error("the server resumed a session")
		}
		conn.Close()
	}
}

func TestReloadsCertificate(t *testing.T) {
	r := newTestLink(t, serverCert)
	clientFiles := r.clientCA.writeFiles(t, writerCert, r.serverCA)
	old := r.dialWith(t, clientFiles, serverURI)
	before := serverSerial(t, old)

	r.serverCA.renewFiles(t, serverCert, r.files)
	r.server.id.reload()

	if after := serverSerial(t, r.dialWith(t, clientFiles, serverURI)); after == before {
		t.Error("a new connection still sees the old certificate")
	}
	if again := serverSerial(t, old); again != before {
		t.Error("live connection has another certificate")
	}
	leaf := r.server.id.leaf.Load().Leaf
	want := "slicefeed_inventory_certificate_expiry_timestamp_seconds"
	if got := gaugeValue(t, r.metrics, want); got != float64(leaf.NotAfter.Unix()) {
		t.Errorf("%s is %v, want %v", want, got, leaf.NotAfter.Unix())
	}
}

func TestReloadsPeerCA(t *testing.T) {
	r := newTestLink(t, serverCert)
	oldCA, newCA := r.clientCA, newTestCA(t, "client CA")
	dial := func(ca *testCA) error {
		r.clientCA = ca
		return checkHealth(t, r.dial(t, writerCert, serverURI))
	}
	step := func(what string, bundle []byte, wantOld, wantNew bool) {
		t.Helper()
		writeFile(t, r.files.PeerCA, bundle)
		r.server.id.reload()
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

func TestInvalidFileKeepsPreviousContent(t *testing.T) {
	for _, c := range []struct {
		file  string // label of the metric
		spoil func(*testing.T, *testLink)
		want  string // in the log
	}{
		{"ca", func(t *testing.T, r *testLink) { writeFile(t, r.files.PeerCA, []byte("garbage")) }, "no PEM certificate found"},
		{"ca", func(t *testing.T, r *testLink) { writeFile(t, r.files.PeerCA, nil) }, "no PEM certificate found"},
		{"ca", func(t *testing.T, r *testLink) {
			writeFile(t, r.files.PeerCA, append(newTestCA(t, "x").pem, r.clientCA.pem[:100]...))
		}, "is truncated"},
		{"ca", func(t *testing.T, r *testLink) { // as cat makes it of a file without a newline at its end
			bundle := slices.Concat(bytes.TrimSpace(r.clientCA.pem), newTestCA(t, "x").pem, newTestCA(t, "y").pem)
			writeFile(t, r.files.PeerCA, bundle)
		}, "only 1 of 3 PEM blocks"},
		{"ca", func(t *testing.T, r *testLink) { // a dash is missing
			writeFile(t, r.files.PeerCA, append(newTestCA(t, "x").pem, r.clientCA.pem[1:]...))
		}, "only 1 of 2 PEM blocks"},
		{"ca", func(t *testing.T, r *testLink) { os.Remove(r.files.PeerCA) }, "no such file"},
		{"cert", func(t *testing.T, r *testLink) { writeFile(t, r.files.Cert, []byte("garbage")) }, "no PEM certificate found"},
		{"cert", func(t *testing.T, r *testLink) {
			r.serverCA.renewFiles(t, certSpec{sans: []string{serverURI}}, r.files)
		}, "does not include"},
		{"cert", func(t *testing.T, r *testLink) { r.serverCA.renewFiles(t, certSpec{usages: forServers}, r.files) }, "no URI or DNS SAN"},
		{"cert", func(t *testing.T, r *testLink) { writeFile(t, r.files.Key, []byte("garbage")) }, noPEMText},
		{"cert", func(t *testing.T, r *testLink) {
			_, keyPEM := r.serverCA.issueCert(t, serverCert)
			writeFile(t, r.files.Key, keyPEM)
		}, "does not match"},
		{"clients", func(t *testing.T, r *testLink) { writeFile(t, r.listPath, []byte("clients: []")) }, "no clients"},
	} {
		t.Run(c.file+" "+c.want, func(t *testing.T) {
			r := newTestLink(t, serverCert)
			c.spoil(t, r)
			r.server.id.reload()
			r.server.id.reload()
			if got := reloadErrors(t, r.metrics, c.file); got != 2 {
				t.Errorf("counted %v errors of %q, want 2", got, c.file)
			}
			if n := strings.Count(r.log.String(), "reload failed"); n != 1 || !strings.Contains(r.log.String(), c.want) {
				t.Errorf("want one line with %q:\n%s", c.want, r.log)
			}
			if strings.Contains(r.log.String(), "PRIVATE KEY") {
				t.Error("log contains a private key")
			}
			if _, err := callProbe(t, r.dial(t, writerCert, serverURI), "Who", ""); err != nil {
				t.Errorf("previous content is not in use: %v", err)
			}
		})
	}
}

const noPEMText = "failed to find any PEM data in key input"

func TestReportsAllInvalidFilesAtStart(t *testing.T) {
	ca := newTestCA(t, "CA")
	f := ca.writeFiles(t, serverCert, ca)
	writeFile(t, f.Cert, []byte("garbage"))
	f.PeerCA = filepath.Join(t.TempDir(), "missing.crt")
	cfg := (&testLink{log: &testLog{}, metrics: prometheus.NewRegistry()}).config("inventory", "feed", f)
	_, err := NewServer(cfg, filepath.Join(t.TempDir(), "missing.yaml"))
	if err == nil {
		t.Fatal("started with invalid files")
	}
	for _, want := range []string{f.Cert + ": no PEM certificate found", "missing.crt: no such file", "missing.yaml: no such file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not contain %q:\n%v", want, err)
		}
	}
}

func TestEndBeforeTheFirstConnectionIsNoError(t *testing.T) {
	r := newTestLink(t, serverCert)
	for range 100 { // the server may or may not have begun by then
		listener := must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.server.Serve(ctx, listener, testService{r}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReloadsFilesPeriodically(t *testing.T) {
	r := &testLink{serverCA: newTestCA(t, "server CA"), clientCA: newTestCA(t, "client CA"), reloadInterval: time.Millisecond}
	r.writeFiles(t, serverCert)
	r.start(t)
	r.serverCA.renewFiles(t, serverCert, r.files)
	want := must(parseCertificates(must(os.ReadFile(r.files.Cert))(t)))(t)[0]
	for ctx := testContext(t); !want.Equal(r.server.id.leaf.Load().Leaf); runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal("the new certificate is not in use")
		}
	}
}

func expectError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("rejected: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted, want an error with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("got %v, want an error with %q", err, want)
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

// reloadErrors returns how often a file was invalid when it was reloaded.
func reloadErrors(t *testing.T, g prometheus.Gatherer, file string) float64 {
	t.Helper()
	for _, f := range must(g.Gather())(t) {
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if strings.HasSuffix(f.GetName(), "_tls_reload_errors_total") && label.GetName() == "file" && label.GetValue() == file {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatalf("no errors are counted for %s", file)
	return 0
}

func gaugeValue(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	for _, f := range must(g.Gather())(t) {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
