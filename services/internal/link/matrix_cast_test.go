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

// casting is what a row of the matrix makes its certificates from. The presenter has the good
// name and usage of its role; the judge trusts ca, and has its own certificate of judges.
type casting struct {
	*testing.T

	ca, judges *authority
	san, dns   string
	usages     []x509.ExtKeyUsage
}

// good is the template of a certificate that the judge accepts.
func (c *casting) good() *x509.Certificate {
	tmpl := template("leaf")
	tmpl.KeyUsage, tmpl.ExtKeyUsage = x509.KeyUsageDigitalSignature, c.usages
	tmpl.URIs = []*url.URL{must(url.Parse(c.san))(c)}
	return tmpl
}

// sign has a template signed by an authority, for a key.
func (c *casting) sign(by *authority, tmpl *x509.Certificate, key crypto.Signer) []byte {
	c.Helper()
	return must(x509.CreateCertificate(rand.Reader, tmpl, by.cert, key.Public(), by.key))(c)
}

// issue is a certificate of an authority with a new key, and the chain to show with it.
func (c *casting) issue(by *authority, tmpl *x509.Certificate, chain ...*authority) tls.Certificate {
	c.Helper()
	return c.keyed(by, tmpl, c.key(), chain...)
}

func (c *casting) keyed(by *authority, tmpl *x509.Certificate, key crypto.Signer, chain ...*authority) tls.Certificate {
	c.Helper()
	all := [][]byte{c.sign(by, tmpl, key)}
	for _, ca := range chain {
		all = append(all, ca.cert.Raw)
	}
	return tls.Certificate{Certificate: all, PrivateKey: key}
}

func (c *casting) key() *ecdsa.PrivateKey {
	c.Helper()
	return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(c)
}

// below is an authority that another one has signed, altered as told.
func (c *casting) below(above *authority, alter func(*x509.Certificate)) *authority {
	c.Helper()
	tmpl := template("an intermediate CA")
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
	if alter != nil {
		alter(tmpl)
	}
	key := c.key()
	return c.authority(c.sign(above, tmpl, key), key)
}

// root is an authority of its own, altered as told.
func (c *casting) root(alter func(*x509.Certificate)) *authority {
	c.Helper()
	tmpl := template("a CA")
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
	alter(tmpl)
	key := c.key()
	return c.authority(must(x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key))(c), key)
}

func (c *casting) authority(der []byte, key *ecdsa.PrivateKey) *authority {
	c.Helper()
	return &authority{cert: must(x509.ParseCertificate(der))(c), key: key, pem: encoded(der)}
}

func encoded(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// presented is one certificate, and the judgement that it gets from each of the ends.
type presented struct {
	name   string
	is     func(*casting) tls.Certificate
	trusts func(*casting) []byte // what the judge trusts; nil: ca alone

	refused  string // what the judge says when it refuses
	stranger bool   // in order, but of no known name: a server says so at each call, a client in the handshake
	byDNS    bool   // accepted by the DNS name alone: a client wants just one
	twoKnown bool   // as stranger, at a server only: it bears the names of two clients
}

// altered is a good certificate but for one thing.
func altered(how func(*x509.Certificate)) func(*casting) tls.Certificate {
	return func(c *casting) tls.Certificate {
		tmpl := c.good()
		how(tmpl)
		return c.issue(c.ca, tmpl)
	}
}

// named is a certificate that is good but for its names.
func named(uris []string, dns ...string) func(*casting) tls.Certificate {
	return func(c *casting) tls.Certificate {
		fill := strings.NewReplacer("{san}", c.san, "{dns}", c.dns).Replace
		tmpl := c.good()
		tmpl.URIs = nil
		for _, u := range uris {
			tmpl.URIs = append(tmpl.URIs, must(url.Parse(fill(u)))(c))
		}
		for _, d := range dns {
			tmpl.DNSNames = append(tmpl.DNSNames, fill(d))
		}
		return c.issue(c.ca, tmpl)
	}
}

// deep is a good certificate below so many authorities, all of which are shown.
func deep(n int) func(*casting) tls.Certificate {
	return func(c *casting) tls.Certificate {
		last, chain := c.ca, []*authority{}
		for i := range n { // of one name they would be tried in every order
			last = c.below(last, func(x *x509.Certificate) { x.Subject.CommonName = fmt.Sprint("CA ", i) })
			chain = append([]*authority{last}, chain...)
		}
		return c.issue(last, c.good(), chain...)
	}
}

// crowded is a good certificate, shown with so many others that have nothing to do with it.
func crowded(n int) func(*casting) tls.Certificate {
	return func(c *casting) tls.Certificate {
		cert := c.issue(c.ca, c.good())
		other := c.root(func(*x509.Certificate) {}).cert.Raw
		for range n {
			cert.Certificate = append(cert.Certificate, other)
		}
		return cert
	}
}

// oversized is a public key that no one has.
type oversized struct {
	crypto.Signer

	public crypto.PublicKey
}

func (o oversized) Public() crypto.PublicKey { return o.public }

func weakKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	return must(rsa.GenerateKey(rand.Reader, 1024))(t)
}

func encodedKey(t testing.TB, key crypto.PrivateKey) []byte {
	t.Helper()
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))(t)})
}

func number(bits uint) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return n.SetBit(n, 0, 1)
}

func ago(d time.Duration) time.Time { return time.Now().Add(-d) }
