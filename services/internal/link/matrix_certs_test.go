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

// certBuilder builds the certificates of a case, by default with the correct name and usage for the end
// that presents them. The other end, the verifier, trusts ca and has a certificate from verifierCA.
type certBuilder struct {
	*testing.T

	ca, verifierCA *testCA
	san, dns       string
	usages         []x509.ExtKeyUsage
}

// goodTemplate returns the template of a certificate that the verifier accepts.
func (c *certBuilder) goodTemplate() *x509.Certificate {
	tmpl := certTemplate("leaf")
	tmpl.KeyUsage, tmpl.ExtKeyUsage = x509.KeyUsageDigitalSignature, c.usages
	tmpl.URIs = []*url.URL{must(url.Parse(c.san))(c)}
	return tmpl
}

// signTemplate signs a template for a key.
func (c *certBuilder) signTemplate(by *testCA, tmpl *x509.Certificate, key crypto.Signer) []byte {
	c.Helper()
	return must(x509.CreateCertificate(rand.Reader, tmpl, by.cert, key.Public(), by.key))(c)
}

// issueCert returns a certificate with a new key, and the chain to present with it.
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

// intermediateCA returns a CA signed by another one.
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

// rootCA returns a self-signed CA.
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

// certCase is a certificate and how each end must treat it.
type certCase struct {
	name        string
	build       func(*certBuilder) tls.Certificate
	trustBundle func(*certBuilder) []byte // what the verifier trusts; nil: only ca

	wantError     string // in the verifier's error; empty: the certificate is valid
	unknownName   bool   // valid, but without a name that the verifier knows
	acceptedByDNS bool   // a client that expects the URI rejects it
	ambiguousName bool   // a server rejects it, because it has the names of two clients
}

// alteredCert returns a good certificate with one change.
func alteredCert(how func(*x509.Certificate)) func(*certBuilder) tls.Certificate {
	return func(c *certBuilder) tls.Certificate {
		tmpl := c.goodTemplate()
		how(tmpl)
		return c.issueCert(c.ca, tmpl)
	}
}

// namedCert returns a good certificate with other names.
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

// deepChain returns a good certificate below n intermediates, and presents all of them.
func deepChain(n int) func(*certBuilder) tls.Certificate {
	return func(c *certBuilder) tls.Certificate {
		last, chain := c.ca, []*testCA{}
		for i := range n { // with equal names, crypto/x509 would try them in every order
			last = c.intermediateCA(last, func(x *x509.Certificate) { x.Subject.CommonName = fmt.Sprint("CA ", i) })
			chain = append([]*testCA{last}, chain...)
		}
		return c.issueCert(last, c.goodTemplate(), chain...)
	}
}

// paddedChain returns a good certificate, presented with n unrelated ones.
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

// fakePublicKey is a signer that claims another public key.
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
