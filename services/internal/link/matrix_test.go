package link

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// Every case runs against the three ends of Slicefeed: the inventory's server, the writer's server,
// which differs only in its name, and the writer's client. The other end is plain crypto/tls and grpc.
func TestCertificateMatrix(t *testing.T) {
	for _, tc := range certMatrix {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			t.Run("inventory server", func(t *testing.T) { tc.checkServer(t, "inventory", "feed") })
			t.Run("writer server", func(t *testing.T) { tc.checkServer(t, "writer", "listener/endpoints") })
			t.Run("writer client", func(t *testing.T) { tc.checkClient(t) })
		})
	}
}

// checkServer presents the certificate to a server.
func (tc *certCase) checkServer(t *testing.T, component, name string) {
	r := &testLink{serverCA: newTestCA(t, "verifier CA"), clientCA: newTestCA(t, "presenter CA"), component: component, name: name}
	c := &certBuilder{T: t, ca: r.clientCA, verifierCA: r.serverCA, san: writerURI, dns: operatorDNS, usages: forClients}
	trusted := tc.trustedCAs(c)
	r.writeFiles(t, serverCert)
	writeFile(t, r.files.PeerCA, trusted)
	r.start(t)

	cert := tc.build(c)
	conn := r.connect(t, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		InsecureSkipVerify:   true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	})))
	errHealth := checkHealth(t, conn)
	_, errWho := callProbe(t, conn, "Who", "")
	failed := func() float64 { return testutil.ToFloat64(r.server.handshaker.failures) }
	if tc.wantError != "" {
		if status.Code(errHealth) != codes.Unavailable {
			t.Errorf("client gets %v, want UNAVAILABLE", errHealth)
		}
		r.log.waitFor(t, "TLS handshake failed")
		if failed() == 0 || !strings.Contains(r.log.String(), tc.wantError) {
			t.Errorf("counted %v failures; log does not contain %q:\n%s", failed(), tc.wantError, r.log)
		}
		return
	}
	if tc.unknownName || tc.ambiguousName {
		for _, err := range []error{errHealth, errWho} {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("call of an unlisted client gets %v, want UNAVAILABLE", err)
			}
		}
		r.log.waitFor(t, "client is not listed")
		return
	}
	if errHealth != nil || errWho != nil || failed() != 0 {
		t.Errorf("handshake or call failed: %v, %v (%v counted)\n%s", errHealth, errWho, failed(), r.log)
	}
}

// checkClient presents the certificate to a client.
func (tc *certCase) checkClient(t *testing.T) {
	r := &testLink{serverCA: newTestCA(t, "presenter CA"), clientCA: newTestCA(t, "verifier CA"), component: "writer", name: "default"}
	c := &certBuilder{T: t, ca: r.serverCA, verifierCA: r.clientCA, san: serverURI, dns: serverDNS, usages: forServers}
	trusted := tc.trustedCAs(c)
	r.log = &testLog{}
	cert := tc.build(c)
	r.address = serveHealth(t, grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert,
	}))), listenLocal(t))

	f := r.clientCA.writeFiles(t, writerCert, r.serverCA)
	writeFile(t, f.PeerCA, trusted)
	err := checkHealth(t, r.dialWith(t, f, serverURI))
	switch {
	case tc.unknownName:
		expectError(t, err, "the server's certificate is for")
	case tc.acceptedByDNS:
		expectError(t, err, "the server's certificate is for")
		expectError(t, checkHealth(t, r.dialWith(t, f, serverDNS)), "")
	default:
		expectError(t, err, tc.wantError)
	}
	if tc.wantError != "" && status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
}

func (tc *certCase) trustedCAs(c *certBuilder) []byte {
	if tc.trustBundle == nil {
		return c.ca.pem
	}
	return tc.trustBundle(c)
}
