package link

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
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
	certs, err := certificate.Parse(caPEM)
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
