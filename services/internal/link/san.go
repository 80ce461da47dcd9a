package link

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// SAN is a subject alternative name, a URI such as spiffe://example.org/writer or a DNS
// name, compared exactly (but for the case of a URI's scheme, and an empty fragment, which mean
// nothing). It is the only name a peer has: the common name means nothing.
type SAN string

// ParseSAN checks that text can be a name in a certificate. Wildcards are refused: a name
// that fits many peers identifies none.
func ParseSAN(text string) (SAN, error) {
	if strings.Contains(text, "://") {
		u, err := url.Parse(text)
		if strings.Contains(text, "*") {
			return "", fmt.Errorf("%q has a wildcard, want the whole name: names are compared exactly", text)
		}
		if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return "", fmt.Errorf("%q is no URI like spiffe://example.org/name", text)
		}
		return SAN(u.String()), nil
	}
	if problems := validation.IsDNS1123Subdomain(text); len(problems) > 0 {
		return "", fmt.Errorf("%q is neither a URI like spiffe://example.org/name nor a lower-case DNS name", text)
	}
	return SAN(text), nil
}

// UnmarshalText is ParseSAN, for settings.
func (s *SAN) UnmarshalText(text []byte) error {
	parsed, err := ParseSAN(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// certSANs are the SANs of a certificate that can identify a peer, URIs first. What would be a
// name of the other kind counts for nothing: a CA's rules for the one say nothing of the other.
func certSANs(leaf *x509.Certificate) []SAN {
	all := make([]SAN, 0, len(leaf.URIs)+len(leaf.DNSNames))
	for _, u := range leaf.URIs {
		if u.Scheme != "" && u.Host != "" {
			all = append(all, SAN(u.String()))
		}
	}
	for _, d := range leaf.DNSNames {
		if !strings.Contains(d, "/") {
			all = append(all, SAN(d))
		}
	}
	return all
}
