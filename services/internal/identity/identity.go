// Package identity is how an end of a link proves who it is, and how it verifies its peers: its
// certificate, the CAs of its peers, and mutual TLS 1.3 with both. It guarantees that every peer has an
// affordable chain to one of these CAs, for the usage of its end, and that changed files take effect
// without a restart. It does not offer host name verification, and does not know which clients are listed.
package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
)

// Files are the PEM files of one end.
type Files struct {
	Cert   string // this end's certificate and its intermediates
	Key    string // its private key
	PeerCA string // the CAs that sign the *other* end's certificates
}

// Config configures an Identity.
type Config struct {
	Files      Files
	Usage      x509.ExtKeyUsage // of this end's certificate
	Component  string           // "inventory" or "writer": metrics are slicefeed_<component>_…
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Identity is this end's certificate and the CAs of its peers. Each handshake uses the current ones.
//
// grpc's pemfile provider was rejected: it only logs its errors, so they cannot be counted, it logs the
// private key when that does not match the certificate, and it requires certificate and key in one
// directory.
type Identity struct {
	Reloader

	files Files
	usage x509.ExtKeyUsage
	leaf  atomic.Pointer[tls.Certificate]
	roots atomic.Pointer[rootCAs]

	certPEM, keyPEM, caPEM []byte // the files' content in use; only accessed by loadLeaf and loadRoots
}

// rootCAs are the CAs that sign the peers' certificates.
type rootCAs struct {
	certs []*x509.Certificate
	pool  *x509.CertPool
}

// New loads the files. Its error names every problem.
func New(cfg Config) (*Identity, error) {
	i := &Identity{files: cfg.Files, usage: cfg.Usage, Reloader: newReloader(cfg)}
	errCert, errCA := i.AddFile("cert", "certificate", i.loadLeaf), i.AddFile("ca", "peer CAs", i.loadRoots)
	if err := errors.Join(errCert, errCA); err != nil {
		return nil, err
	}
	cfg.Registerer.MustRegister(i.errors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: cfg.Component, Name: "certificate_expiry_timestamp_seconds",
		Help: "Unix time at which this component's certificate of the link expires.",
	}, func() float64 { return float64(i.leaf.Load().Leaf.NotAfter.Unix()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slicefeed", Subsystem: cfg.Component, Name: "peer_ca_expiry_timestamp_seconds",
		Help: "Unix time at which the last of the CAs that sign the peers' certificates of the link expires.",
	}, func() float64 {
		var last int64
		for _, ca := range i.roots.Load().certs {
			last = max(last, ca.NotAfter.Unix())
		}
		return float64(last)
	}))
	return i, nil
}

// Leaf returns this end's certificate.
func (i *Identity) Leaf() *x509.Certificate { return i.leaf.Load().Leaf }

// keyError is an error of the private key, which is loaded with the certificate.
type keyError struct{ error }

func (i *Identity) loadLeaf() (changed bool, err error) {
	certPEM, err := os.ReadFile(i.files.Cert)
	if err != nil {
		return false, err
	}
	keyPEM, err := os.ReadFile(i.files.Key)
	if err != nil {
		return false, keyError{err}
	}
	if bytes.Equal(certPEM, i.certPEM) && bytes.Equal(keyPEM, i.keyPEM) {
		return false, nil
	}
	certs, err := certificate.Parse(certPEM)
	if err == nil {
		err = certificate.CheckOwn(certs, i.usage)
	}
	// At startup, a certificate that is not valid now is accepted: there is no better one, and the peers'
	// clocks may differ.
	if err == nil && i.leaf.Load() != nil {
		err = certificate.CheckPeriod(certs[0], time.Now())
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", i.files.Cert, err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil { // the certificate parses, so the key is invalid or belongs to another certificate
		return false, keyError{fmt.Errorf("%s: %w", i.files.Key, err)}
	}
	i.certPEM, i.keyPEM = certPEM, keyPEM
	i.leaf.Store(&pair)
	return true, nil
}

func (i *Identity) loadRoots() (changed bool, err error) {
	caPEM, err := os.ReadFile(i.files.PeerCA)
	if err != nil || bytes.Equal(caPEM, i.caPEM) && i.roots.Load() != nil {
		return false, err
	}
	certs, err := certificate.Parse(caPEM)
	if err != nil {
		return false, fmt.Errorf("%s: %w", i.files.PeerCA, err)
	}
	i.caPEM = caPEM
	i.roots.Store(&rootCAs{certs, certificate.NewPool(certs)})
	return true, nil
}
