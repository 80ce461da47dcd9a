package link

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// identity is this end's certificate and the CAs of its peers, reloaded from their files. Each handshake
// uses the current ones.
//
// grpc's pemfile provider was rejected: it only logs its errors, so they cannot be counted, it logs the
// private key when that does not match the certificate, and it requires certificate and key in one
// directory.
type identity struct {
	files        Files
	usage        x509.ExtKeyUsage
	leaf         atomic.Pointer[tls.Certificate]
	roots        atomic.Pointer[rootCAs]
	lastCAExpiry atomic.Int64 // Unix time at which the last of roots expires

	certPEM, keyPEM, caPEM []byte // the files' content in use; only accessed by loadLeaf and loadRoots
}

// rootCAs are the CAs that sign the peers' certificates.
type rootCAs struct {
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// fileError is the error of one of the files.
type fileError struct {
	file string // cert, key, ca or clients: the label of the metric
	path string
	err  error
}

func (e *fileError) Error() string { return fmt.Sprintf("%s: %v", e.path, e.err) }
func (e *fileError) Unwrap() error { return e.err }

var usageNames = map[x509.ExtKeyUsage]string{
	x509.ExtKeyUsageServerAuth: "server auth", x509.ExtKeyUsageClientAuth: "client auth",
}

func (i *identity) loadLeaf() (bool, error) {
	certPEM, err := os.ReadFile(i.files.Cert)
	if err != nil {
		return false, &fileError{"cert", i.files.Cert, stripPath(err)}
	}
	keyPEM, err := os.ReadFile(i.files.Key)
	if err != nil {
		return false, &fileError{"key", i.files.Key, stripPath(err)}
	}
	if bytes.Equal(certPEM, i.certPEM) && bytes.Equal(keyPEM, i.keyPEM) {
		return false, nil
	}
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return false, &fileError{"cert", i.files.Cert, err}
	}
	if !slices.Contains(certs[0].ExtKeyUsage, i.usage) {
		return false, &fileError{"cert", i.files.Cert, fmt.Errorf(
			"extended key usage does not include %q, so no peer accepts the certificate; issue it with that usage", usageNames[i.usage])}
	}
	if len(certSANs(certs[0])) == 0 {
		return false, &fileError{"cert", i.files.Cert, errors.New("certificate has no URI or DNS SAN, so no peer can identify it; issue it with one")}
	}
	// At startup, such a certificate is accepted: there is no better one, and the peers' clocks may differ.
	if now := time.Now(); i.leaf.Load() != nil && (now.Before(certs[0].NotBefore) || now.After(certs[0].NotAfter)) {
		return false, &fileError{"cert", i.files.Cert, fmt.Errorf("certificate is only valid from %s to %s, so no peer accepts it now",
			certs[0].NotBefore.UTC().Format(time.RFC3339), certs[0].NotAfter.UTC().Format(time.RFC3339))}
	}
	if err := errors.Join(checkKeyStrength([][]*x509.Certificate{certs}), checkChainCost(certs)); err != nil { // every peer would reject it
		return false, &fileError{"cert", i.files.Cert, err}
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil { // the certificate parses, so the key is invalid or belongs to another certificate
		return false, &fileError{"key", i.files.Key, err}
	}
	i.certPEM, i.keyPEM = certPEM, keyPEM
	i.leaf.Store(&pair)
	return true, nil
}

func (i *identity) loadRoots() (bool, error) {
	caPEM, err := os.ReadFile(i.files.PeerCA)
	if err != nil {
		return false, &fileError{"ca", i.files.PeerCA, stripPath(err)}
	}
	if bytes.Equal(caPEM, i.caPEM) {
		return false, nil
	}
	certs, err := parseCertificates(caPEM)
	if err != nil {
		return false, &fileError{"ca", i.files.PeerCA, err}
	}
	pool := x509.NewCertPool()
	var lastExpiry int64
	for _, c := range certs {
		pool.AddCert(c)
		lastExpiry = max(lastExpiry, c.NotAfter.Unix())
	}
	i.lastCAExpiry.Store(lastExpiry)
	i.caPEM = caPEM
	i.roots.Store(&rootCAs{certs, pool})
	return true, nil
}

// parseCertificates requires every block to be a complete certificate: part of a CA bundle, from a file
// that is being written, would lock peers out.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("PEM block %q, want only certificates", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(certs)+1, err)
		}
		certs, text = append(certs, c), rest
	}
	if bytes.Contains(text, []byte("-----BEGIN")) {
		return nil, fmt.Errorf("PEM block after certificate %d is truncated", len(certs))
	}
	if len(certs) == 0 {
		return nil, errors.New("no PEM certificate found")
	}
	return certs, nil
}

// stripPath removes the path from an error of package os, because fileError has it.
func stripPath(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

func (i *identity) certExpiry() float64 { return float64(i.leaf.Load().Leaf.NotAfter.Unix()) }

// newIdentity loads the files and registers them with r. Its error names every problem.
func newIdentity(cfg *Config, usage x509.ExtKeyUsage, r *reloader) (*identity, error) {
	i := &identity{files: cfg.Files, usage: usage}
	_, errLeaf := i.loadLeaf()
	_, errRoots := i.loadRoots()
	if err := errors.Join(errLeaf, errRoots); err != nil {
		return nil, err
	}
	cfg.linkRegisterer().MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: cfg.Component, Name: "certificate_expiry_timestamp_seconds",
		Help: "Unix time at which this component's certificate of the link expires.",
	}, i.certExpiry), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: cfg.Component, Name: "peer_ca_expiry_timestamp_seconds",
		Help: "Unix time at which the last of the CAs that sign the peers' certificates of the link expires.",
	}, func() float64 { return float64(i.lastCAExpiry.Load()) }))
	r.addReload("certificate", i.loadLeaf)
	r.addReload("peer CAs", i.loadRoots)
	return i, nil
}
