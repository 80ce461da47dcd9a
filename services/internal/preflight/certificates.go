package preflight

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
	"github.com/slicefeed/slicefeed/services/internal/link"
)

// expiryWarning is the remaining validity that causes a warning. It is long enough to notice that
// automatic renewal has stopped; certificates with a short validity are renewed before.
const expiryWarning = 14 * 24 * time.Hour

// Identity is the certificate files of one end of a link.
type Identity struct {
	Files  link.Files
	Server bool             // whether this end is the server
	Now    func() time.Time // nil: time.Now
}

// The names of the checks that Identity.Checks returns.
const (
	OwnCertificate = "certificate"
	OwnKey         = "certificate key"
	PeerCA         = "peer CA"
)

// Checks returns the checks of this end's certificate, its key and the CA of its peers.
func (i Identity) Checks() []Check {
	if i.Now == nil {
		i.Now = time.Now
	}
	return []Check{
		{Name: OwnCertificate, Run: func(context.Context) (string, error) { return i.checkCertificate() }},
		{Name: OwnKey, DependsOn: []string{OwnCertificate}, Run: func(context.Context) (string, error) { return i.checkKey() }},
		{Name: PeerCA, Run: func(context.Context) (string, error) { return i.checkPeerCA() }},
	}
}

func (i Identity) checkCertificate() (string, error) {
	file := i.Files.Cert
	certs, err := readCertificates(file)
	if err != nil {
		return "", err
	}
	usage, name := x509.ExtKeyUsageClientAuth, "client auth"
	if i.Server {
		usage, name = x509.ExtKeyUsageServerAuth, "server auth"
	}
	leaf, unusable := certs[0], certificate.CheckOwn(certs, usage)
	if unusable != nil {
		unusable = fmt.Errorf("%s: %w", file, unusable)
	}
	if err := errors.Join(unusable, i.checkPeriod(file, leaf)); err != nil {
		return "", err
	}
	switch err := i.checkExpiry(file, leaf); {
	case err != nil:
		return "", err
	case i.Server && len(leaf.DNSNames) == 0:
		return "", Warning("%s: no DNS SAN; writers accept it, but grpcurl does not; issue it with one", file)
	}
	return fmt.Sprintf("%s, for %s, %s", certNames(leaf), name, i.describeExpiry(leaf)), nil
}

func (i Identity) checkKey() (string, error) {
	certPEM, err := os.ReadFile(i.Files.Cert)
	if err != nil {
		return "", err
	}
	keyPEM, err := os.ReadFile(i.Files.Key)
	if err != nil {
		return "", fmt.Errorf("%w; mount or create the private key", err)
	}
	if _, err := tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return "", fmt.Errorf("%s: does not match the certificate %s (%w); use the key that the certificate was issued for", i.Files.Key, i.Files.Cert, err)
	}
	return "matches the certificate", nil
}

func (i Identity) checkPeerCA() (string, error) {
	file := i.Files.PeerCA
	cas, err := readCertificates(file)
	if err != nil {
		return "", err
	}
	var problems, invalid []error
	var usable []*x509.Certificate
	for _, ca := range cas {
		switch err := i.checkPeriod(file, ca); {
		case !ca.BasicConstraintsValid || !ca.IsCA:
			problems = append(problems, fmt.Errorf("%s: %q is not a CA; peers cannot be verified; use the certificate of the CA that signs the peers' certificates", file, certSubject(ca)))
		case err != nil:
			invalid = append(invalid, err)
		default:
			usable = append(usable, ca)
		}
	}
	if len(usable) == 0 { // an invalid one beside a usable one is left over from a rotation
		problems = append(problems, invalid...)
	}
	if err := errors.Join(problems...); err != nil {
		return "", err
	}
	if i.signsOwnCertificate(cas) {
		return "", Warning("%s: the CA also signs this component's own certificate; that is correct only if both components share a CA; "+
			"if the file is ca.crt of this component's own cert-manager Secret, replace it with the CA of the other component", file)
	}
	first := slices.MinFunc(usable, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	if err := i.checkExpiry(file, first); err != nil {
		return "", err
	}
	var subjects []string
	for _, ca := range cas {
		subjects = append(subjects, certSubject(ca))
	}
	return fmt.Sprintf("%s, %s", strings.Join(subjects, "; "), i.describeExpiry(first)), nil
}

// signsOwnCertificate reports whether all of the CAs signed this end's certificate.
func (i Identity) signsOwnCertificate(cas []*x509.Certificate) bool {
	own, err := readCertificates(i.Files.Cert)
	return err == nil && !slices.ContainsFunc(cas, func(ca *x509.Certificate) bool {
		return own[0].CheckSignatureFrom(ca) != nil
	})
}

// checkPeriod checks that a certificate is valid now.
func (i Identity) checkPeriod(file string, c *x509.Certificate) error {
	if err := certificate.CheckPeriod(c, i.Now()); err != nil {
		return fmt.Errorf("%s: %q %w; a running component reloads the file within a minute", file, certSubject(c), err)
	}
	return nil
}

// checkExpiry warns if a certificate expires soon.
func (i Identity) checkExpiry(file string, c *x509.Certificate) error {
	if c.NotAfter.Sub(i.Now()) < expiryWarning {
		return Warning("%s: %q %s; check its automatic renewal; a running component reloads the file within a minute", file, certSubject(c), i.describeExpiry(c))
	}
	return nil
}

// describeExpiry describes when a certificate expires.
func (i Identity) describeExpiry(c *x509.Certificate) string {
	left := c.NotAfter.Sub(i.Now())
	if left < 48*time.Hour {
		return fmt.Sprintf("expires in %s", left.Round(time.Minute))
	}
	return fmt.Sprintf("expires in %d days, on %s", int(left.Hours()/24), c.NotAfter.UTC().Format(time.DateOnly))
}

func certNames(c *x509.Certificate) string {
	var sans []string
	for _, u := range c.URIs {
		sans = append(sans, u.String())
	}
	return strings.Join(append(sans, c.DNSNames...), ", ")
}

func certSubject(c *x509.Certificate) string {
	if text := c.Subject.String(); text != "" {
		return text
	}
	return certNames(c)
}

// readCertificates returns the certificates of a PEM file, at least one.
func readCertificates(file string) ([]*x509.Certificate, error) {
	certs, err := certificate.Read(file)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w; mount or create the file", err)
	}
	return certs, err
}
