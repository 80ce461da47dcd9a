package link

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"testing"
)

// forgeChain returns a chain of count certificates, all signed with one key that no CA signed. Each has
// the subject of the trusted root, so crypto/x509 tries each as the issuer of every other, and the root.
func forgeChain(t testing.TB, key crypto.Signer, count int, root *testCA) [][]byte {
	t.Helper()
	var chain [][]byte
	for n := range count {
		tmpl := certTemplate("")
		tmpl.Subject = root.cert.Subject
		tmpl.DNSNames = []string{fmt.Sprintf("%d.example", n)} // otherwise crypto/x509 skips it as a loop
		tmpl.ExtKeyUsage = forClients
		if n > 0 {
			tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
		}
		chain = append(chain, must(x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key))(t))
	}
	return chain
}

func mustParseCerts(t testing.TB, chain [][]byte) []*x509.Certificate {
	t.Helper()
	var certs []*x509.Certificate
	for _, der := range chain {
		certs = append(certs, must(x509.ParseCertificate(der))(t))
	}
	return certs
}

// A peer chooses the keys of its certificates, so only keys that a trusted CA signed may cost CPU time.
func TestVerifiesSignaturesOnlyWithTrustedKeys(t *testing.T) {
	root, former := newTestCA(t, "client CA"), newTestCA(t, "client CA")
	roots := []*x509.Certificate{root.cert, former.cert}
	checks := 0
	err := checkSigned(
		mustParseCerts(t, forgeChain(t, must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))(t), maxChainCerts, root)),
		roots,
		func(c, issuer *x509.Certificate) error {
			checks++
			if issuer != root.cert && issuer != former.cert {
				t.Errorf("signature checked with the key of the %s", DescribeCertificate(issuer))
			}
			return c.CheckSignatureFrom(issuer)
		},
	)
	if err == nil {
		t.Error("forged chain accepted")
	}
	if want := maxChainCerts * len(roots); checks != want {
		t.Errorf("checked %d signatures, want %d", checks, want)
	}
}

func TestAcceptsChainsInAnyOrder(t *testing.T) {
	c := &certBuilder{T: t, ca: newTestCA(t, "client CA"), san: writerURI, usages: forClients}
	upper := c.intermediateCA(c.ca, nil)
	lower := c.intermediateCA(upper, nil) // of the same subject
	leaf := must(x509.ParseCertificate(c.signTemplate(lower, c.goodTemplate(), c.newKey())))(t)
	other := newTestCA(t, "an intermediate CA")
	roots := []*x509.Certificate{other.cert, c.ca.cert}
	for _, tt := range []struct {
		name  string
		chain []*x509.Certificate
		want  bool
	}{
		{"from the bottom to the top", []*x509.Certificate{leaf, lower.cert, upper.cert}, true},
		{"in another order", []*x509.Certificate{leaf, upper.cert, lower.cert}, true},
		{"with the root", []*x509.Certificate{leaf, lower.cert, upper.cert, c.ca.cert}, true},
		{"one of them twice", []*x509.Certificate{leaf, lower.cert, lower.cert, upper.cert}, true},
		{"with an unknown certificate", []*x509.Certificate{leaf, newTestCA(t, "an intermediate CA").cert, lower.cert, upper.cert}, true},
		{"the root itself", []*x509.Certificate{c.ca.cert}, true},
		{"with a gap", []*x509.Certificate{leaf, lower.cert}, false},
		{"with another gap", []*x509.Certificate{leaf, upper.cert}, false},
		{"alone", []*x509.Certificate{leaf}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := checkSigned(tt.chain, roots, (*x509.Certificate).CheckSignatureFrom); (err == nil) != tt.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

// BenchmarkVerifyForgedChain measures the CPU time that anyone who can reach the port can cause with a
// chain, here and with crypto/x509 alone.
func BenchmarkVerifyForgedChain(b *testing.B) {
	root := newTestCA(b, "client CA")
	roots := x509.NewCertPool()
	roots.AddCert(root.cert)
	for _, c := range []struct {
		name string
		key  func() (crypto.Signer, error)
	}{
		{"RSA-4096", func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 4096) }},
		{"RSA-8192", func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 8192) }},
		{"P-256", func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }},
		{"P-384", func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) }},
		{"P-521", func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P521(), rand.Reader) }},
		{"Ed25519", func() (crypto.Signer, error) { _, key, err := ed25519.GenerateKey(rand.Reader); return key, err }},
	} {
		key := must(c.key())(b)
		for _, count := range []int{maxChainCerts, 16} {
			chain := forgeChain(b, key, count, root)
			b.Run(fmt.Sprintf("%s/%d/here", c.name, count), func(b *testing.B) {
				for b.Loop() {
					certs := mustParseCerts(b, chain)
					err := checkChainCost(certs)
					if err == nil {
						err = checkSigned(certs, []*x509.Certificate{root.cert}, (*x509.Certificate).CheckSignatureFrom)
					}
					if err == nil {
						b.Fatal("chain accepted")
					}
				}
			})
			b.Run(fmt.Sprintf("%s/%d/crypto-x509", c.name, count), func(b *testing.B) {
				for b.Loop() {
					certs, pool := mustParseCerts(b, chain), x509.NewCertPool()
					for _, cert := range certs[1:] {
						pool.AddCert(cert)
					}
					if _, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: pool, KeyUsages: forClients}); err == nil {
						b.Fatal("chain accepted")
					}
				}
			})
		}
	}
}
