package link

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"slices"
)

// What a peer may present. All of this is checked before the first signature is: whoever can reach
// the port can present anything.
const (
	maxCerts     = 4 // a certificate, two intermediates, and a root that need not be there
	maxCertBytes = 16 << 10

	// maxNames is how many names one certificate has, and how many constraints on names: crypto/x509
	// compares each with each, and who the peer is takes a look at each.
	maxNames = 64

	minRSA      = 2048  // NIST SP 800-131A; crypto/x509 takes 1,024 bits
	maxRSA      = 4096  // the cost of a signature grows with the square; BenchmarkVerifyForgedChain has figures
	maxExponent = 65537 // and with the exponent, which may have 31 bits
)

// parsePeerChain refuses what costs too much to verify, and returns the certificates otherwise.
func parsePeerChain(chain [][]byte) ([]*x509.Certificate, error) {
	total := 0
	for _, c := range chain {
		total += len(c)
	}
	if len(chain) > maxCerts || total > maxCertBytes {
		return nil, fmt.Errorf("the peer presents %d certificates of %d bytes; want at most %d of %d bytes: the certificate and its intermediates",
			len(chain), total, maxCerts, maxCertBytes)
	}
	certs := make([]*x509.Certificate, len(chain))
	for i, der := range chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		if err := checkCertCost(c); err != nil {
			return nil, err
		}
		certs[i] = c
	}
	return certs, nil
}

// checkChainSigned reports whether the trusted CAs have signed the first certificate of a chain, be it by
// way of the others. It comes before crypto/x509, which goes up from that certificate and tries each
// of a chain as the issuer of each that names its subject, with keys of the peer's choice: fifteen
// signatures for four certificates, and as many with the trusted CA's own. With P-521 that took 32 ms,
// and takes 0.04 ms here (BenchmarkVerifyForgedChain). Going down from the trusted CAs only keys are
// used that they have signed for. Whatever else matters, such as times,
// usages and constraints, crypto/x509 checks afterwards.
func checkChainSigned(chain, roots []*x509.Certificate, signedBy func(c, issuer *x509.Certificate) error) error {
	issuers, unsigned := slices.Clone(roots), slices.Clone(chain)
	var hint error
	for len(issuers) > 0 {
		issuer := issuers[0]
		issuers = issuers[1:]
		unsigned = slices.DeleteFunc(unsigned, func(c *x509.Certificate) bool {
			if c.Equal(issuer) {
				return true
			}
			if !bytes.Equal(c.RawIssuer, issuer.RawSubject) {
				return false
			}
			if err := signedBy(c, issuer); err != nil {
				hint = err
				return false
			}
			issuers = append(issuers, c)
			return true
		})
		if len(unsigned) == 0 || unsigned[0] != chain[0] {
			return nil
		}
	}
	unknown := x509.UnknownAuthorityError{Cert: chain[0]}
	if hint != nil {
		return fmt.Errorf("%w (%w)", unknown, hint)
	}
	return unknown
}

func checkCertCost(c *x509.Certificate) error {
	if key, ok := c.PublicKey.(*rsa.PublicKey); ok && (key.N.BitLen() > maxRSA || key.E > maxExponent) {
		return fmt.Errorf("the RSA key of %s has %d bits and the exponent %d; want at most %d and %d",
			describeCert(c), key.N.BitLen(), key.E, maxRSA, maxExponent)
	}
	all := len(c.URIs) + len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses)
	constraints := len(c.PermittedURIDomains) + len(c.ExcludedURIDomains) + len(c.PermittedDNSDomains) + len(c.ExcludedDNSDomains) +
		len(c.PermittedEmailAddresses) + len(c.ExcludedEmailAddresses) + len(c.PermittedIPRanges) + len(c.ExcludedIPRanges)
	if all > maxNames || constraints > maxNames {
		return fmt.Errorf("%s has %d names and %d name constraints; want at most %d of each", describeCert(c), all, constraints, maxNames)
	}
	return nil
}

// checkOwnChain is parsePeerChain for what we present ourselves, so that a chain which every peer would
// refuse is found where it can be mended.
func checkOwnChain(certs []*x509.Certificate) error {
	raw := make([][]byte, len(certs))
	for i, c := range certs {
		raw[i] = c.Raw
	}
	_, err := parsePeerChain(raw)
	return err
}

// checkKeyStrength refuses chains with an RSA key that is too short, unless there is one without.
func checkKeyStrength(chains [][]*x509.Certificate) error {
	var weak error
	for _, chain := range chains {
		var found error
		for _, c := range chain {
			if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() < minRSA {
				found = fmt.Errorf("the RSA key of %s has %d bits: issue it with %d or more, or with an elliptic curve's", describeCert(c), key.N.BitLen(), minRSA)
			}
		}
		if found == nil {
			return nil
		}
		weak = found
	}
	return weak
}
