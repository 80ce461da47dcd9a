package link

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// testCA is a CA for one test.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

var serial atomic.Int64

func certTemplate(name string) *x509.Certificate {
	n := serial.Add(1)
	return &x509.Certificate{
		SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

func newTestCA(t testing.TB, name string) *testCA {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	tmpl := certTemplate(name)
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
	der := must(x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key))(t)
	return &testCA{
		cert: must(x509.ParseCertificate(der))(t), key: key,
		pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}
}

// certSpec describes a certificate that is valid for an hour.
type certSpec struct {
	sans    []string
	usages  []x509.ExtKeyUsage
	expired bool
}

func (a *testCA) issueCert(t testing.TB, spec certSpec) (certPEM, keyPEM []byte) {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	tmpl := certTemplate("leaf")
	tmpl.KeyUsage, tmpl.ExtKeyUsage = x509.KeyUsageDigitalSignature, spec.usages
	if spec.expired {
		tmpl.NotAfter = time.Now().Add(-time.Minute)
	}
	for _, san := range spec.sans {
		if strings.Contains(san, "://") {
			tmpl.URIs = append(tmpl.URIs, must(url.Parse(san))(t))
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, san)
		}
	}
	der := must(x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))(t)})
}

// writeFiles issues a certificate and writes it, its key and the peers' CA to a new directory.
func (a *testCA) writeFiles(t testing.TB, spec certSpec, peers *testCA) Files {
	t.Helper()
	dir := t.TempDir()
	f := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), PeerCA: filepath.Join(dir, "peer-ca.crt")}
	a.renewFiles(t, spec, f)
	writeFile(t, f.PeerCA, peers.pem)
	return f
}

// renewFiles replaces the certificate in the files.
func (a *testCA) renewFiles(t testing.TB, spec certSpec, f Files) {
	t.Helper()
	certPEM, keyPEM := a.issueCert(t, spec)
	writeFile(t, f.Cert, certPEM)
	writeFile(t, f.Key, keyPEM)
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var (
	forServers = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	forClients = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
)

const (
	serverURI   = "spiffe://example.org/slicefeed/inventory"
	serverDNS   = "inventory.example"
	writerURI   = "spiffe://example.org/slicefeed/writer"
	operatorDNS = "person.example"
)
