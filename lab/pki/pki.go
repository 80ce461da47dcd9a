// Package pki makes throw-away certificate authorities and certificates. It promises
// P-256 keys, exactly the names and usages that were asked for, and files that are
// replaced whole; it refuses to be careful with keys: they are for the lab only.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Usage says what a certificate may be used for.
type Usage uint8

// The usages; they can be combined. The zero value is both of them.
const (
	Client Usage = 1 << iota
	Server
)

// Cert describes a certificate to issue.
type Cert struct {
	CommonName   string   // also the user name at a Kubernetes API server
	Organization []string // also the groups there
	URIs         []string
	DNS          []string
	IPs          []netip.Addr
	Usage        Usage
	NotBefore    time.Time // zero: an hour ago
	NotAfter     time.Time // zero: a year after NotBefore
}

// Pair is a certificate with its private key, in PEM.
type Pair struct {
	CertPEM []byte
	KeyPEM  []byte
}

// CA is a certificate authority that lives in memory.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// NewCA makes a self-signed authority, valid for ten years.
func NewCA(name string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key of CA %s: %w", name, err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	start := time.Now().Add(-time.Hour)
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             start,
		NotAfter:              start.AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign CA %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse CA %s: %w", name, err)
	}
	return &CA{cert: cert, key: key, pem: encode("CERTIFICATE", der)}, nil
}

// PEM returns the authority's certificate.
func (ca *CA) PEM() []byte { return ca.pem }

// Pool returns a pool that holds this authority alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Issue makes a key and signs a certificate for it.
func (ca *CA) Issue(c Cert) (Pair, error) {
	template, err := c.template()
	if err != nil {
		return Pair{}, fmt.Errorf("issue certificate %q: %w", c.CommonName, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate key of certificate %q: %w", c.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate %q: %w", c.CommonName, err)
	}
	// SEC 1 rather than PKCS #8: the API server reads service account keys only so.
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode key of certificate %q: %w", c.CommonName, err)
	}
	return Pair{CertPEM: encode("CERTIFICATE", der), KeyPEM: encode("EC PRIVATE KEY", keyDER)}, nil
}

func (c Cert) template() (*x509.Certificate, error) {
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = c.NotBefore.AddDate(1, 0, 0)
	}
	if c.Usage == 0 {
		c.Usage = Client | Server
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: c.CommonName, Organization: c.Organization},
		NotBefore:             c.NotBefore,
		NotAfter:              c.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		DNSNames:              c.DNS,
	}
	if c.Usage&Client != 0 {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if c.Usage&Server != 0 {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, raw := range c.URIs {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("URI name %q: %w", raw, err)
		}
		t.URIs = append(t.URIs, u)
	}
	for _, ip := range c.IPs {
		t.IPAddresses = append(t.IPAddresses, net.IP(ip.AsSlice()))
	}
	return t, nil
}

// Write stores the pair as name.crt and name.key in dir and returns their paths. Each
// file is replaced whole; the two of them are not replaced in one step (the key goes
// first), as with most tools that renew certificates.
func (p Pair) Write(dir, name string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := WriteFile(keyFile, p.KeyPEM); err != nil {
		return "", "", err
	}
	if err := WriteFile(certFile, p.CertPEM); err != nil {
		return "", "", err
	}
	return certFile, keyFile, nil
}

// Write stores the authority's certificate (never its key) as name.crt in dir.
func (ca *CA) Write(dir, name string) (string, error) {
	path := filepath.Join(dir, name+".crt")
	return path, WriteFile(path, ca.pem)
}

// WriteFile replaces a file in one step: a reader sees the old content or the new one.
// Only the owner may read it.
func WriteFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = tmp.Write(data)
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func serialNumber() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return serial, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
