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

// The matrix of certificates is judged by all three ends that there are: two that listen, which are
// the same but for their name, and the one that dials. What faces a judge is no code of ours.
func TestCertificateMatrix(t *testing.T) {
	for _, p := range certMatrix {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			t.Run("to the inventory", func(t *testing.T) { p.checkServer(t, "inventory", "feed") })
			t.Run("to the writer's listener", func(t *testing.T) { p.checkServer(t, "writer", "listener/endpoints") })
			t.Run("to the writer", func(t *testing.T) { p.checkClient(t) })
		})
	}
}

// checkServer is the judgement of an end that listens.
func (p *certCase) checkServer(t *testing.T, half, name string) {
	r := &testLink{serverCA: newTestCA(t, "the judge's CA"), clientCA: newTestCA(t, "the presenter's CA"), component: half, name: name}
	c := &certBuilder{T: t, ca: r.clientCA, verifierCA: r.serverCA, san: writerURI, dns: operatorDNS, usages: forClients}
	trusted := p.trustedCAs(c)
	r.writeFiles(t, serverCert)
	writeFile(t, r.files.PeerCA, trusted)
	r.start(t)

	cert := p.build(c)
	conn := r.connect(t, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		InsecureSkipVerify:   true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	})))
	errHealth := checkHealth(t, conn)
	_, errWho := callProbe(t, conn, "Who", "")
	failed := func() float64 { return testutil.ToFloat64(r.server.creds.failures) }
	if p.wantError != "" {
		if status.Code(errHealth) != codes.Unavailable {
			t.Errorf("the client gets %v, want UNAVAILABLE", errHealth)
		}
		r.log.waitFor(t, "TLS handshake refused")
		if failed() == 0 || !strings.Contains(r.log.String(), p.wantError) {
			t.Errorf("%v refusals are counted; the log does not say %q:\n%s", failed(), p.wantError, r.log)
		}
		return
	}
	if p.unknownName || p.ambiguousName {
		for _, err := range []error{errHealth, errWho} {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("an unlisted client's call gets %v, want UNAVAILABLE", err)
			}
		}
		r.log.waitFor(t, "this client is not on the list")
		return
	}
	if errHealth != nil || errWho != nil || failed() != 0 {
		t.Errorf("the handshake or the call is refused: %v, %v (%v counted)\n%s", errHealth, errWho, failed(), r.log)
	}
}

// checkClient is the judgement of the end that dials, of a server that is none of ours.
func (p *certCase) checkClient(t *testing.T) {
	r := &testLink{serverCA: newTestCA(t, "the presenter's CA"), clientCA: newTestCA(t, "the judge's CA"), component: "writer", name: "default"}
	c := &certBuilder{T: t, ca: r.serverCA, verifierCA: r.clientCA, san: serverURI, dns: serverDNS, usages: forServers}
	trusted := p.trustedCAs(c)
	r.log = &testLog{}
	cert := p.build(c)
	r.address = serveHealth(t, grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert,
	}))), listenLocal(t))

	f := r.clientCA.writeFiles(t, writerCert, r.serverCA)
	writeFile(t, f.PeerCA, trusted)
	err := checkHealth(t, r.dialWith(t, f, serverURI))
	switch {
	case p.unknownName:
		expectError(t, err, "the server's certificate is for")
	case p.acceptedByDNS:
		expectError(t, err, "the server's certificate is for")
		expectError(t, checkHealth(t, r.dialWith(t, f, serverDNS)), "")
	default:
		expectError(t, err, p.wantError)
	}
	if p.wantError != "" && status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
}

func (p *certCase) trustedCAs(c *certBuilder) []byte {
	if p.trustBundle == nil {
		return c.ca.pem
	}
	return p.trustBundle(c)
}
