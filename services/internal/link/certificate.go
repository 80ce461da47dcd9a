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

// What both the link and preflight require of certificates.

var usageNames = map[x509.ExtKeyUsage]string{
	x509.ExtKeyUsageServerAuth: "server auth", x509.ExtKeyUsageClientAuth: "client auth",
}

// ReadCertificates returns the certificates of a PEM file, at least one.
func ReadCertificates(path string) ([]*x509.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	certs, err := ParseCertificates(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return certs, nil
}

// ParseCertificates requires every block to be a complete certificate: part of a CA bundle, from a file
// that is being written, would lock peers out.
func ParseCertificates(text []byte) ([]*x509.Certificate, error) {
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
			return nil, fmt.Errorf("certificate %d: %w; issue it again", len(certs)+1, err)
		}
		certs, text = append(certs, c), rest
	}
	if bytes.Contains(text, []byte("-----BEGIN")) {
		return nil, fmt.Errorf("PEM block after certificate %d is truncated", len(certs))
	}
	if len(certs) == 0 {
		return nil, errors.New("no PEM certificate found; write the certificate to the file, in PEM form")
	}
	return certs, nil
}

// CheckOwnCertificate checks what every peer requires of the certificates that an end presents, apart
// from who signed them and when they are valid. Its error names every problem.
func CheckOwnCertificate(certs []*x509.Certificate, usage x509.ExtKeyUsage) error {
	var problems []error
	if !slices.Contains(certs[0].ExtKeyUsage, usage) {
		problems = append(problems, fmt.Errorf(
			"extended key usage does not include %q; no peer accepts it; issue it with that usage (cert-manager: usages)", usageNames[usage]))
	}
	if len(certSANs(certs[0])) == 0 {
		problems = append(problems, errors.New("no URI or DNS SAN; no peer can identify it; issue it with one"))
	}
	return errors.Join(append(problems, checkKeyStrength([][]*x509.Certificate{certs}), checkChainCost(certs))...)
}

// CheckPeriod checks that a certificate is valid at a time.
func CheckPeriod(c *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(c.NotBefore):
		return fmt.Errorf("not valid before %s; check this machine's clock, or wait", c.NotBefore.UTC().Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("expired on %s; renew it", c.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
