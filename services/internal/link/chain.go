package link

import (
	"crypto/rsa"
	"crypto/x509"
	"fmt"
)

// What a peer may present. All of this is checked before the first signature is: whoever can reach
// the port can present what he likes. Where several certificates have the same subject crypto/x509
// tries each as the issuer of each, up to a hundred signatures; four certificates take fifteen.
const (
	maxCerts     = 4 // a certificate, two intermediates, and a root that need not be there
	maxCertBytes = 16 << 10

	// maxNames is how many names one certificate has, and how many constraints on names: crypto/x509
	// compares each with each, and who the peer is takes a look at each.
	maxNames = 64

	minRSA      = 2048  // NIST SP 800-131A; crypto/x509 takes 1,024 bits
	maxRSA      = 4096  // the cost of a signature grows with the square, of 8,192 bits it is 0.8 ms
	maxExponent = 65537 // and with the exponent, which may have 31 bits
)

// checkPresented refuses what costs too much to verify.
func checkPresented(chain [][]byte) error {
	total := 0
	for _, c := range chain {
		total += len(c)
	}
	if len(chain) > maxCerts || total > maxCertBytes {
		return fmt.Errorf("the peer presents %d certificates of %d bytes; want at most %d of %d bytes: the certificate and its intermediates",
			len(chain), total, maxCerts, maxCertBytes)
	}
	for _, der := range chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		if err := checkCost(c); err != nil {
			return err
		}
	}
	return nil
}

func checkCost(c *x509.Certificate) error {
	if key, ok := c.PublicKey.(*rsa.PublicKey); ok && (key.N.BitLen() > maxRSA || key.E > maxExponent) {
		return fmt.Errorf("the RSA key of %s has %d bits and the exponent %d; want at most %d and %d",
			described(c), key.N.BitLen(), key.E, maxRSA, maxExponent)
	}
	all := len(c.URIs) + len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses)
	constraints := len(c.PermittedURIDomains) + len(c.ExcludedURIDomains) + len(c.PermittedDNSDomains) + len(c.ExcludedDNSDomains) +
		len(c.PermittedEmailAddresses) + len(c.ExcludedEmailAddresses) + len(c.PermittedIPRanges) + len(c.ExcludedIPRanges)
	if all > maxNames || constraints > maxNames {
		return fmt.Errorf("%s has %d names and %d name constraints; want at most %d of each", described(c), all, constraints, maxNames)
	}
	return nil
}

// checkOwn is checkPresented for what we present ourselves, so that a chain which every peer would
// refuse is found where it can be mended.
func checkOwn(certs []*x509.Certificate) error {
	raw := make([][]byte, len(certs))
	for i, c := range certs {
		raw[i] = c.Raw
	}
	return checkPresented(raw)
}

// strong refuses chains with an RSA key that is too short, unless there is one without.
func strong(chains [][]*x509.Certificate) error {
	var weak error
	for _, chain := range chains {
		var found error
		for _, c := range chain {
			if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() < minRSA {
				found = fmt.Errorf("the RSA key of %s has %d bits: issue it with %d or more, or with an elliptic curve's", described(c), key.N.BitLen(), minRSA)
			}
		}
		if found == nil {
			return nil
		}
		weak = found
	}
	return weak
}
