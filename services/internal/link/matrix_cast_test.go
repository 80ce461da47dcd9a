package link

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"
)

// certBuilder is what a row of the matrix makes its certificates from. The presenter has the good
// name and usage of its role; the judge trusts ca, and has its own certificate of judges.
type certBuilder struct {
	*testing.T

	ca, verifierCA *testCA
	san, dns       string
	usages         []x509.ExtKeyUsage
}

// goodTemplate is the template of a certificate that the judge accepts.
func (c *certBuilder) goodTemplate() *x509.Certificate {
	tmpl := certTemplate("leaf")
	tmpl.KeyUsage, tmpl.ExtKeyUsage = x509.KeyUsageDigitalSignature, c.usages
	tmpl.URIs = []*url.URL{must(url.Parse(c.san))(c)}
	return tmpl
}

// signTemplate has a template signed by an authority, for a key.
func (c *certBuilder) signTemplate(by *testCA, tmpl *x509.Certificate, key crypto.Signer) []byte {
	c.Helper()
	return must(x509.CreateCertificate(rand.Reader, tmpl, by.cert, key.Public(), by.key))(c)
}

// issueCert is a certificate of an authority with a new key, and the chain to show with it.
func (c *certBuilder) issueCert(by *testCA, tmpl *x509.Certificate, chain ...*testCA) tls.Certificate {
	c.Helper()
	return c.issueForKey(by, tmpl, c.newKey(), chain...)
}

func (c *certBuilder) issueForKey(by *testCA, tmpl *x509.Certificate, key crypto.Signer, chain ...*testCA) tls.Certificate {
	c.Helper()
	all := [][]byte{c.signTemplate(by, tmpl, key)}
	for _, ca := range chain {
		all = append(all, ca.cert.Raw)
	}
	return tls.Certificate{Certificate: all, PrivateKey: key}
}

func (c *certBuilder) newKey() *ecdsa.PrivateKey {
	c.Helper()
	return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(c)
}

// intermediateCA is an authority that another one has signed, altered as told.
func (c *certBuilder) intermediateCA(above *testCA, alter func(*x509.Certificate)) *testCA {
	c.Helper()
	tmpl := certTemplate("an intermediate CA")
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
	if alter != nil {
		alter(tmpl)
	}
	key := c.newKey()
	return c.newTestCA(c.signTemplate(above, tmpl, key), key)
}

// rootCA is an authority of its own, altered as told.
func (c *certBuilder) rootCA(alter func(*x509.Certificate)) *testCA {
	c.Helper()
	tmpl := certTemplate("a CA")
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
	alter(tmpl)
	key := c.newKey()
	return c.newTestCA(must(x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key))(c), key)
}

func (c *certBuilder) newTestCA(der []byte, key *ecdsa.PrivateKey) *testCA {
	c.Helper()
	return &testCA{cert: must(x509.ParseCertificate(der))(c), key: key, pem: encodeCert(der)}
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// certCase is one certificate, and the judgement that it gets from each of the ends.
type certCase struct {
	name        string
	build       func(*certBuilder) tls.Certificate
	trustBundle func(*certBuilder) []byte // what the judge trusts; nil: ca alone

	wantError     string // what the judge says when it refuses
	unknownName   bool   // in order, but of no known name: a server says so at each call, a client in the handshake
	acceptedByDNS bool   // accepted by the DNS name alone: a client wants just one
	ambiguousName bool   // as stranger, at a server only: it bears the names of two clients
}

// alteredCert is a good certificate but for one thing.
func alteredCert(how func(*x509.Certificate)) func(*certBuilder) tls.Certificate {
	return func(c *certBuilder) tls.Certificate {
		tmpl := c.goodTemplate()
		how(tmpl)
		return c.issueCert(c.ca, tmpl)
	}
}

// namedCert is a certificate that is good but for its names.
func namedCert(uris []string, dns ...string) func(*certBuilder) tls.Certificate {
	return func(c *certBuilder) tls.Certificate {
		fill := strings.NewReplacer("{san}", c.san, "{dns}", c.dns).Replace
		tmpl := c.goodTemplate()
		tmpl.URIs = nil
		for _, u := range uris {
			tmpl.URIs = append(tmpl.URIs, must(url.Parse(fill(u)))(c))
		}
		for _, d := range dns {
			tmpl.DNSNames = append(tmpl.DNSNames, fill(d))
		}
		return c.issueCert(c.ca, tmpl)
	}
}

// deepChain is a good certificate below so many authorities, all of which are shown.
func deepChain(n int) func(*certBuilder) tls.Certificate {
	return func(c *certBuilder) tls.Certificate {
		last, chain := c.ca, []*testCA{}
		for i := range n { // of one name they would be tried in every order
			last = c.intermediateCA(last, func(x *x509.Certificate) { x.Subject.CommonName = fmt.Sprint("CA ", i) })
			chain = append([]*testCA{last}, chain...)
		}
		return c.issueCert(last, c.goodTemplate(), chain...)
	}
}

// paddedChain is a good certificate, shown with so many others that have nothing to do with it.
func paddedChain(n int) func(*certBuilder) tls.Certificate {
	return func(c *certBuilder) tls.Certificate {
		cert := c.issueCert(c.ca, c.goodTemplate())
		other := c.rootCA(func(*x509.Certificate) {}).cert.Raw
		for range n {
			cert.Certificate = append(cert.Certificate, other)
		}
		return cert
	}
}

// fakePublicKey is a public key that no one has.
type fakePublicKey struct {
	crypto.Signer

	public crypto.PublicKey
}

func (o fakePublicKey) Public() crypto.PublicKey { return o.public }

func weakKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	return must(rsa.GenerateKey(rand.Reader, 1024))(t)
}

func encodeKey(t testing.TB, key crypto.PrivateKey) []byte {
	t.Helper()
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))(t)})
}

func oddNumber(bits uint) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return n.SetBit(n, 0, 1)
}

func timeAgo(d time.Duration) time.Time { return time.Now().Add(-d) }
