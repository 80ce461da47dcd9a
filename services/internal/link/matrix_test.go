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
func TestEachEndJudgesWhatAPeerPresents(t *testing.T) {
	for _, p := range matrix {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			t.Run("to the inventory", func(t *testing.T) { p.toServer(t, "inventory", "feed") })
			t.Run("to the writer's listener", func(t *testing.T) { p.toServer(t, "writer", "listener/endpoints") })
			t.Run("to the writer", func(t *testing.T) { p.toClient(t) })
		})
	}
}

// toServer is the judgement of an end that listens.
func (p *presented) toServer(t *testing.T, half, name string) {
	r := &rig{serverCA: newAuthority(t, "the judge's CA"), clientCA: newAuthority(t, "the presenter's CA"), half: half, name: name}
	c := &casting{T: t, ca: r.clientCA, judges: r.serverCA, san: writerURI, dns: personDNS, usages: forClients}
	trusted := p.trusted(c)
	r.prepare(t, goodServer)
	write(t, r.files.PeerCA, trusted)
	r.start(t)

	cert := p.is(c)
	conn := r.connect(t, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		InsecureSkipVerify:   true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	})))
	errHealth := checkHealth(t, conn)
	_, errWho := call(t, conn, "Who", "")
	failed := func() float64 { return testutil.ToFloat64(r.server.creds.failed) }
	if p.refused != "" {
		if status.Code(errHealth) != codes.Unavailable {
			t.Errorf("the client gets %v, want UNAVAILABLE", errHealth)
		}
		r.log.await(t, "TLS handshake refused")
		if failed() == 0 || !strings.Contains(r.log.String(), p.refused) {
			t.Errorf("%v refusals are counted; the log does not say %q:\n%s", failed(), p.refused, r.log)
		}
		return
	}
	if p.stranger || p.twoKnown {
		for _, err := range []error{errHealth, errWho} {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("an unlisted client's call gets %v, want UNAVAILABLE", err)
			}
		}
		r.log.await(t, "this client is not on the list")
		return
	}
	if errHealth != nil || errWho != nil || failed() != 0 {
		t.Errorf("the handshake or the call is refused: %v, %v (%v counted)\n%s", errHealth, errWho, failed(), r.log)
	}
}

// toClient is the judgement of the end that dials, of a server that is none of ours.
func (p *presented) toClient(t *testing.T) {
	r := &rig{serverCA: newAuthority(t, "the presenter's CA"), clientCA: newAuthority(t, "the judge's CA"), half: "writer", name: "default"}
	c := &casting{T: t, ca: r.serverCA, judges: r.clientCA, san: serverURI, dns: serverDNS, usages: forServers}
	trusted := p.trusted(c)
	r.log = &journal{}
	cert := p.is(c)
	r.address = serving(t, grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert,
	}))), listen(t))

	f := r.clientCA.files(t, goodWriter, r.serverCA)
	write(t, f.PeerCA, trusted)
	err := checkHealth(t, r.dialWith(t, f, serverURI))
	switch {
	case p.stranger:
		expect(t, err, "the server's certificate is for")
	case p.byDNS:
		expect(t, err, "the server's certificate is for")
		expect(t, checkHealth(t, r.dialWith(t, f, serverDNS)), "")
	default:
		expect(t, err, p.refused)
	}
	if p.refused != "" && status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
}

func (p *presented) trusted(c *casting) []byte {
	if p.trusts == nil {
		return c.ca.pem
	}
	return p.trusts(c)
}
