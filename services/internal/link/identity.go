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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/security/advancedtls"
)

// identity is this end's certificate and the CAs of its peers, reloaded from their files. advancedtls
// gets the current ones for each handshake.
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
	if err := errors.Join(checkKeyStrength([][]*x509.Certificate{certs}), checkOwnChain(certs)); err != nil {
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

// tlsOptions requires TLS 1.3, a chain to the peer's CA, the extended key usage of the peer's role, and
// that accept returns no error.
//
// The usage is checked here because crypto/x509 accepts a certificate without any extended key usage
// for every usage.
func (i *identity) tlsOptions(peerUsage x509.ExtKeyUsage, accept func(*x509.Certificate) error) *advancedtls.Options {
	return &advancedtls.Options{
		MinTLSVersion: tls.VersionTLS13, MaxTLSVersion: tls.VersionTLS13,
		RequireClientCert: true,
		VerificationType:  advancedtls.CertVerification,
		// advancedtls calls this before it verifies the chain, so costly chains are rejected here.
		RootOptions: advancedtls.RootCertificateOptions{
			GetRootCertificates: func(c *advancedtls.ConnectionInfo) (*advancedtls.RootCertificates, error) {
				chain, err := parsePeerChain(c.RawCerts)
				if err != nil {
					return nil, err
				}
				roots := i.roots.Load()
				if err := checkChainSigned(chain, roots.certs, (*x509.Certificate).CheckSignatureFrom); err != nil {
					return nil, err
				}
				return &advancedtls.RootCertificates{TrustCerts: roots.pool}, nil
			},
		},
		AdditionalPeerVerification: func(h *advancedtls.HandshakeVerificationInfo) (*advancedtls.PostHandshakeVerificationResults, error) {
			if !slices.Contains(h.Leaf.ExtKeyUsage, peerUsage) {
				return nil, fmt.Errorf("peer certificate is not for %s: %s", usageNames[peerUsage], describeCert(h.Leaf))
			}
			if err := checkKeyStrength(h.VerifiedChains); err != nil {
				return nil, err
			}
			return &advancedtls.PostHandshakeVerificationResults{}, accept(h.Leaf)
		},
	}
}

// clientCredentials returns the credentials for dialing the server whose certificate has this name. The
// host name is not verified, because a server's addresses differ between clusters.
func (i *identity) clientCredentials(server SAN) (credentials.TransportCredentials, error) {
	o := i.tlsOptions(x509.ExtKeyUsageServerAuth, func(leaf *x509.Certificate) error {
		if !slices.Contains(certSANs(leaf), server) {
			return fmt.Errorf("the server's certificate is for another name, want %q, got %s", server, describeCert(leaf))
		}
		return nil
	})
	o.IdentityOptions.GetIdentityCertificatesForClient = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return i.leaf.Load(), nil
	}
	creds, err := advancedtls.NewClientCreds(o)
	if err != nil {
		return nil, err
	}
	return &explainingCreds{creds, i}, nil
}

// serverCredentials returns the credentials for a listener. A client that is not listed is rejected in
// the handshake, like one of another CA: it gets an alert that it can log, before any HTTP/2 is read.
func (i *identity) serverCredentials(clients *Clients) (credentials.TransportCredentials, error) {
	o := i.tlsOptions(x509.ExtKeyUsageClientAuth, func(leaf *x509.Certificate) error {
		if clients.findEntry(certSANs(leaf)) == nil {
			return fmt.Errorf("%w: %s; add one of its names to %s", errUnlisted, describeCert(leaf), clients.path)
		}
		return nil
	})
	o.IdentityOptions.GetIdentityCertificatesForServer = func(*tls.ClientHelloInfo) ([]*tls.Certificate, error) {
		return []*tls.Certificate{i.leaf.Load()}, nil
	}
	return advancedtls.NewServerCreds(o)
}
