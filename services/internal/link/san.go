package link

import (
	"crypto/x509"
	"errors"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// SAN is a subject alternative name: a URI such as spiffe://example.org/writer, or a DNS name. It is the
// only name that identifies a peer; the common name is ignored. SANs are compared exactly, except for
// the case of a URI's scheme and an empty fragment (RFC 3986).
type SAN string

// ParseSAN checks that text can be a name in a certificate. It rejects wildcards, because a name that
// matches many peers identifies none. Its error says what it wants.
func ParseSAN(text string) (SAN, error) {
	if strings.Contains(text, "*") {
		return "", errors.New("a complete name without a wildcard; names are compared exactly")
	}
	if u, err := url.Parse(text); err == nil && strings.Contains(text, "://") && u.Scheme != "" && u.Host != "" && u.User == nil &&
		u.RawQuery == "" && u.Fragment == "" {
		return SAN(u.String()), nil
	}
	if len(validation.IsDNS1123Subdomain(text)) > 0 {
		return "", errors.New("a URI such as spiffe://example.org/inventory, or a lower-case DNS name")
	}
	return SAN(text), nil
}

// UnmarshalText parses a SAN from a setting.
func (s *SAN) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSAN(string(text))
	return err
}

// sansOf returns the SANs of a certificate that can identify a peer, URIs first. It ignores DNS names
// that look like URIs, and URIs that look like DNS names: a CA's name constraints for one kind do not
// cover the other.
func sansOf(leaf *x509.Certificate) []SAN {
	sans := make([]SAN, 0, len(leaf.URIs)+len(leaf.DNSNames))
	for _, u := range leaf.URIs {
		if u.Scheme != "" && u.Host != "" {
			sans = append(sans, SAN(u.String()))
		}
	}
	for _, d := range leaf.DNSNames {
		if !strings.Contains(d, "/") {
			sans = append(sans, SAN(d))
		}
	}
	return sans
}
