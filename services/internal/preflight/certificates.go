package preflight

import (
	"cmp"
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
	"github.com/slicefeed/slicefeed/services/internal/identity"
)

// expiryWarning is the remaining validity that causes a warning. It is long enough to notice that
// automatic renewal has stopped; certificates with a short validity are renewed before.
const expiryWarning = 14 * 24 * time.Hour

// Identity is the certificate files of one end of a link.
type Identity struct {
	Files  identity.Files
	Server bool // whether this end is the server
}

// The names of the checks that Identity.Checks returns.
const (
	OwnCertificate = "certificate"
	OwnKey         = "certificate key"
	PeerCA         = "peer CA"
)

// Checks returns the checks of this end's certificate, its key and the CA of its peers.
func (i Identity) Checks() []Check {
	return []Check{
		{Name: OwnCertificate, Run: func(context.Context) (string, error) { return i.checkCertificate() }},
		{Name: OwnKey, DependsOn: []string{OwnCertificate}, Run: func(context.Context) (string, error) { return i.checkKey() }},
		{Name: PeerCA, Run: func(context.Context) (string, error) { return i.checkPeerCA() }},
	}
}

func (i Identity) checkCertificate() (string, error) {
	file := i.Files.Cert
	certs, err := certificate.Read(file)
	if err != nil {
		return "", err
	}
	leaf, usage := certs[0], x509.ExtKeyUsageClientAuth
	if i.Server {
		usage = x509.ExtKeyUsageServerAuth
	}
	unusable := certificate.CheckOwn(certs, usage)
	if unusable != nil {
		unusable = fmt.Errorf("%s: %w", file, unusable)
	}
	expiry, err := i.checkExpiry(file, leaf)
	switch {
	case unusable != nil && isFailure(err):
		return "", errors.Join(unusable, err)
	case unusable != nil || err != nil:
		return "", cmp.Or(unusable, err)
	case i.Server && len(leaf.DNSNames) == 0:
		return "", Warning("%s: no DNS SAN; writers accept it, but grpcurl does not; issue it with one", file)
	}
	return fmt.Sprintf("%s, for %s, %s", certNames(leaf), certificate.UsageName(usage), expiry), nil
}

func (i Identity) checkKey() (string, error) {
	_, err := tls.LoadX509KeyPair(i.Files.Cert, i.Files.Key)
	switch {
	case errors.As(err, new(*os.PathError)):
		return "", fmt.Errorf("%w; mount or create the private key", err)
	case err != nil:
		return "", fmt.Errorf(
			"%s: does not match the certificate %s (%w); use the key that the certificate was issued for",
			i.Files.Key,
			i.Files.Cert,
			err,
		)
	}
	return "matches the certificate", nil
}

func (i Identity) checkPeerCA() (string, error) {
	file := i.Files.PeerCA
	cas, err := certificate.Read(file)
	if err != nil {
		return "", err
	}
	var problems, invalid []error
	var subjects []string
	var first *x509.Certificate // of the usable ones, to expire
	for _, ca := range cas {
		subjects = append(subjects, certSubject(ca))
		if !ca.BasicConstraintsValid || !ca.IsCA {
			problems = append(
				problems,
				fmt.Errorf(
					"%s: %q is not a CA; peers cannot be verified; use the certificate of the CA that signs the peers' certificates",
					file,
					certSubject(ca),
				),
			)
		} else if _, err := i.checkExpiry(file, ca); isFailure(err) {
			invalid = append(invalid, err)
		} else if first == nil || ca.NotAfter.Before(first.NotAfter) {
			first = ca
		}
	}
	if first == nil { // an invalid one beside a usable one is left over from a rotation
		problems = append(problems, invalid...)
	}
	if err := errors.Join(problems...); err != nil {
		return "", err
	}
	own, err := certificate.Read(i.Files.Cert)
	if err == nil && !slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return own[0].CheckSignatureFrom(ca) != nil }) {
		return "", Warning("%s: the CA also signs this component's own certificate; that is correct only if both components share a CA; "+
			"if the file is ca.crt of this component's own cert-manager Secret, replace it with the CA of the other component", file)
	}
	expiry, err := i.checkExpiry(file, first)
	return fmt.Sprintf("%s, %s", strings.Join(subjects, "; "), expiry), err
}

// checkExpiry describes when a certificate expires. It fails if the certificate is not valid now, and
// warns if it expires soon.
func (i Identity) checkExpiry(file string, c *x509.Certificate) (string, error) {
	left := time.Until(c.NotAfter)
	expiry := fmt.Sprintf("expires in %d days, on %s", int(left.Hours()/24), c.NotAfter.UTC().Format(time.DateOnly))
	if left < 48*time.Hour {
		expiry = fmt.Sprintf("expires in %s", left.Round(time.Minute))
	}
	if err := certificate.CheckPeriod(c, time.Now()); err != nil {
		return "", fmt.Errorf("%s: %q %w; a running component reloads the file within a minute", file, certSubject(c), err)
	}
	if left < expiryWarning {
		return "", Warning(
			"%s: %q %s; check its automatic renewal; a running component reloads the file within a minute",
			file,
			certSubject(c),
			expiry,
		)
	}
	return expiry, nil
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
