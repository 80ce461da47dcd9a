package link

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// usageName returns the name of an end's extended key usage.
func usageName(usage x509.ExtKeyUsage) string {
	if usage == x509.ExtKeyUsageServerAuth {
		return "server auth"
	}
	return "client auth"
}

// ReadCertificates returns the certificates of a PEM file, at least one. Its errors have advice.
func ReadCertificates(path string) ([]*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w; mount or create the file", err)
	}
	certs, err := parseCertificates(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return certs, nil
}

// parseCertificates requires every block to be a complete certificate: part of a CA bundle, from a file
// that is being written, would lock peers out.
func parseCertificates(all []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(all); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("PEM block %q, want only certificates", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w; issue it again", len(certs)+1, err)
		}
		certs = append(certs, c)
	}
	// pem.Decode skips what it cannot read, such as two blocks that cat joined in one line.
	if blocks := max(bytes.Count(all, []byte("-----BEGIN")), bytes.Count(all, []byte("-----END"))); blocks != len(certs) {
		return nil, fmt.Errorf("only %d of %d PEM blocks can be read; another is truncated or not on lines of its own", len(certs), blocks)
	}
	if len(certs) == 0 {
		return nil, errors.New("no PEM certificate found; write the certificate to the file, in PEM form")
	}
	return certs, nil
}

// NewCertPool returns a pool of these certificates.
func NewCertPool(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// checkOwn checks what every peer requires of the certificates that an end presents, apart
// from who signed them and when they are valid. Its error names every problem.
func checkOwn(certs []*x509.Certificate, usage x509.ExtKeyUsage) error {
	var problems []error
	if !slices.Contains(certs[0].ExtKeyUsage, usage) {
		problems = append(problems, fmt.Errorf(
			"extended key usage does not include %q; no peer accepts it; issue it with that usage (cert-manager: usages)",
			usageName(usage),
		))
	}
	if len(sansOf(certs[0])) == 0 {
		problems = append(problems, errors.New("no URI or DNS SAN; no peer can identify it; issue it with one"))
	}
	return errors.Join(append(problems, checkKeyStrength([][]*x509.Certificate{certs}), checkChainCost(certs))...)
}

// checkCAs rejects certificates that sign no others: as one of the CAs, a peer's own would lock it out once it is renewed.
func checkCAs(certs []*x509.Certificate) error {
	for _, c := range certs {
		if c.Version == 3 && (!c.BasicConstraintsValid || !c.IsCA) {
			return fmt.Errorf("%s is not a CA's; write the certificate of the CA that signed it to the file", DescribeCertificate(c))
		}
	}
	return nil
}

// checkPeriod checks that a certificate is valid at a time.
func checkPeriod(c *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(c.NotBefore):
		return fmt.Errorf("not valid before %s; check this machine's clock, or wait", c.NotBefore.UTC().Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("expired on %s; renew it", c.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// DescribeCertificate identifies a certificate in a bounded text.
func DescribeCertificate(c *x509.Certificate) string {
	sans, more := sansOf(c), ""
	if len(sans) > 3 {
		sans, more = sans[:3], fmt.Sprintf(" and %d more", len(sans)-3)
	}
	return fmt.Sprintf("certificate for %.200q%s (subject %.200q, issuer %.200q)", sans, more, c.Subject.String(), c.Issuer.String())
}
