package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// identity is how an end proves who it is, and how it verifies its peers: its certificate, and the CAs of its peers. Each
// handshake uses the current ones. It does not verify host names, because a server's addresses differ between clusters.
//
// grpc's pemfile provider was rejected: it only logs its errors, so they cannot be counted, it logs the
// private key when that does not match the certificate, and it requires certificate and key in one
// directory.
type identity struct {
	usage    x509.ExtKeyUsage // of this end's certificate
	paths    Files
	interval time.Duration // between reloads
	log      *slog.Logger
	files    []*reloadedFile
	errors   *prometheus.CounterVec
	leaf     atomic.Pointer[tls.Certificate]
	roots    atomic.Pointer[[]*x509.Certificate] // CAs that sign the peers' certificates
}

// newIdentity loads the files. Its error names every problem.
func newIdentity(cfg Config, usage x509.ExtKeyUsage) (*identity, error) {
	i := &identity{
		usage: usage, paths: cfg.Files, interval: reloadInterval, log: cfg.Logger,
		errors: promauto.With(cfg.Registerer).NewCounterVec(cfg.counter("tls_reload_errors_total",
			"Number of times that a file of the link was invalid when it was reloaded, so that its previous content stayed in use."),
			[]string{"file"}),
	}
	promauto.With(cfg.Registerer).NewGaugeFunc(prometheus.GaugeOpts(cfg.counter("certificate_expiry_timestamp_seconds",
		"Unix time at which this component's certificate of the link expires.")),
		func() float64 { return float64(i.leaf.Load().Leaf.NotAfter.Unix()) })
	promauto.With(cfg.Registerer).NewGaugeFunc(prometheus.GaugeOpts(cfg.counter("peer_ca_expiry_timestamp_seconds",
		"Unix time at which the last of the CAs that sign the peers' certificates of the link expires.")),
		func() float64 {
			var last int64
			for _, ca := range *i.roots.Load() {
				last = max(last, ca.NotAfter.Unix())
			}
			return float64(last)
		})
	return i, errors.Join(
		i.addFile("cert", i.useCertificate, cfg.Files.Cert, cfg.Files.Key), i.addFile("ca", i.useRoots, cfg.Files.PeerCA))
}

// addFile loads a file now and then at each interval.
func (i *identity) addFile(name string, use func(content [][]byte) error, paths ...string) error {
	i.errors.WithLabelValues(name) // present at 0 before the first error
	f := &reloadedFile{name: name, paths: paths, use: use}
	i.files = append(i.files, f)
	_, err := f.reload()
	return err
}

func (i *identity) useCertificate(content [][]byte) error {
	certs, err := parseCertificates(content[0])
	if err == nil {
		err = checkOwn(certs, i.usage)
	}
	// At startup, a certificate that is not valid now is accepted: there is no better one, and the peers'
	// clocks may differ.
	if err == nil && i.leaf.Load() != nil {
		err = checkPeriod(certs[0], time.Now())
	}
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(content[0], content[1])
	if err != nil { // the certificate parses, so the key is invalid or belongs to another certificate
		return fmt.Errorf("key %s: %w", i.paths.Key, err)
	}
	i.leaf.Store(&pair)
	return nil
}

func (i *identity) useRoots(content [][]byte) error {
	certs, err := parseCertificates(content[0])
	if err == nil {
		i.roots.Store(&certs)
	}
	return err
}

// run reloads changed files until ctx is done.
func (i *identity) run(ctx context.Context) error {
	tick := time.NewTicker(i.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			i.reload()
		}
	}
}

// reload reloads changed files now. An error is counted each time, and logged when it first occurs, changes or ends.
func (i *identity) reload() {
	for _, f := range i.files {
		changed, err := f.reload()
		switch {
		case err != nil:
			i.errors.WithLabelValues(f.name).Inc()
			if f.lastError != err.Error() {
				i.log.Error("reload failed, keeping previous file", "file", f.name, "error", err)
			}
			f.lastError = err.Error()
		case changed || f.lastError != "": // unchanged after an error: the file has its previous content again
			i.log.Info("file reloaded", "file", f.name, "changed", changed)
			f.lastError = ""
		}
	}
}

// tlsConfig returns the configuration of either end: TLS 1.3, the current certificate, and a peer whose
// certificate verifyPeer and accept do not reject.
//
// crypto/tls would verify chains itself, but it could not reload CAs, and crypto/x509 alone lets peers
// choose how much a verification costs (checkSigned). So its own verification is off, and
// VerifyConnection, which crypto/tls calls in every handshake, does all of it.
func (i *identity) tlsConfig(accept func(peer *x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, //nolint:gosec // only the host name check is replaced: VerifyConnection verifies the chain and the SAN
		SessionTicketsDisabled: true, // to resume sessions would only save peers what they can afford
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.leaf.Load(), nil },
		GetClientCertificate:   func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.leaf.Load(), nil },
		VerifyConnection: func(s tls.ConnectionState) error {
			err := i.verifyPeer(s.PeerCertificates)
			if err == nil {
				err = accept(s.PeerCertificates[0])
			}
			if err != nil {
				return &HandshakeError{err}
			}
			return nil
		},
	}
}

// verifyPeer requires an affordable chain to a CA of the peers, valid now and for the peer's end.
func (i *identity) verifyPeer(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("peer presents no certificate")
	}
	if err := checkChainCost(chain); err != nil {
		return err
	}
	leaf, roots, usage := chain[0], *i.roots.Load(), x509.ExtKeyUsageServerAuth
	if i.usage == usage {
		usage = x509.ExtKeyUsageClientAuth
	}
	if err := checkSigned(chain, roots, (*x509.Certificate).CheckSignatureFrom); err != nil {
		return i.explainVerification(err)
	}
	verified, err := leaf.Verify(x509.VerifyOptions{
		Roots: NewCertPool(roots), Intermediates: NewCertPool(chain[1:]), KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return i.explainVerification(err)
	}
	// crypto/x509 accepts a certificate without any extended key usage for every usage.
	if !slices.Contains(leaf.ExtKeyUsage, usage) {
		return fmt.Errorf("peer certificate is not for %s: %s; issue it with that extended key usage",
			usageName(usage), DescribeCertificate(leaf))
	}
	return checkKeyStrength(verified)
}
