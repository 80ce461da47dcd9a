package link

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// certMatrix is the certificates that a peer may present. In names, {san} and {dns} stand for the correct
// names.
var certMatrix = []certCase{
	{name: "a good certificate", build: alteredCert(func(*x509.Certificate) {})},

	// Issuers.
	{
		name:      "signed by the verifier's own CA",
		wantError: "unknown authority",
		build:     func(c *certBuilder) tls.Certificate { return c.issueCert(c.verifierCA, c.goodTemplate()) },
	},
	{name: "signed by a CA of the same name and another key", wantError: "unknown authority", build: func(c *certBuilder) tls.Certificate {
		return c.issueCert(c.rootCA(func(x *x509.Certificate) { x.Subject = c.ca.cert.Subject }), c.goodTemplate())
	}},
	{name: "signed by the first of two trusted CAs", trustBundle: bothCAs, build: alteredCert(func(*x509.Certificate) {})},
	{
		name:        "signed by the second of two trusted CAs",
		trustBundle: bothCAs,
		build:       func(c *certBuilder) tls.Certificate { return c.issueCert(c.verifierCA, c.goodTemplate()) },
	},
	{
		name:        "signed by neither of two trusted CAs",
		trustBundle: bothCAs,
		wantError:   "unknown authority",
		build: func(c *certBuilder) tls.Certificate {
			return c.issueCert(c.rootCA(func(*x509.Certificate) {}), c.goodTemplate())
		},
	},
	{name: "self-signed", wantError: "unknown authority", build: selfSigned},
	{name: "a certificate without its key", wantError: "invalid signature", build: func(c *certBuilder) tls.Certificate {
		return tls.Certificate{Certificate: [][]byte{c.issueCert(c.ca, c.goodTemplate()).Certificate[0]}, PrivateKey: c.newKey()}
	}},
	{name: "the CA itself", wantError: "not for", build: func(c *certBuilder) tls.Certificate {
		return tls.Certificate{Certificate: [][]byte{c.ca.cert.Raw}, PrivateKey: c.ca.key}
	}},
	{
		name:      "signed by another peer's certificate",
		wantError: "parent certificate cannot sign",
		build: func(c *certBuilder) tls.Certificate {
			key := c.newKey()
			peer := c.newTestCA(c.signTemplate(c.ca, c.goodTemplate(), key), key)
			return c.issueCert(peer, c.goodTemplate(), peer)
		},
	},
	{
		name:      "below an intermediate without the CA bit",
		wantError: "parent certificate cannot sign",
		build:     belowIntermediate(func(x *x509.Certificate) { x.IsCA = false }),
	},
	{
		name:      "below an intermediate whose path is too long",
		wantError: "too many intermediates",
		build: func(c *certBuilder) tls.Certificate {
			first := c.intermediateCA(c.ca, func(x *x509.Certificate) { x.MaxPathLenZero = true })
			second := c.intermediateCA(first, nil)
			return c.issueCert(second, c.goodTemplate(), second, first)
		},
	},
	{name: "below an intermediate for the other usage", wantError: "incompatible key usage", build: func(c *certBuilder) tls.Certificate {
		ca := c.intermediateCA(c.ca, func(x *x509.Certificate) { x.ExtKeyUsage = otherUsage(c.usages) })
		return c.issueCert(ca, c.goodTemplate(), ca)
	}},
	{
		name:  "below an intermediate that may sign this name",
		build: belowIntermediate(func(x *x509.Certificate) { x.PermittedURIDomains = []string{"example.org"} }),
	},
	{
		name:      "below an intermediate that may only sign other names",
		wantError: "not authorized to sign for this name",
		build:     belowIntermediate(func(x *x509.Certificate) { x.PermittedURIDomains = []string{"example.net"} }),
	},
	{
		name:      "below an intermediate that may not sign this name",
		wantError: "not authorized to sign for this name",
		build:     belowIntermediate(func(x *x509.Certificate) { x.ExcludedURIDomains = []string{"example.org"} }),
	},
	{
		name:        "below a root that may only sign other names",
		wantError:   "not authorized to sign for this name",
		trustBundle: rootForOtherNames,
		build:       func(c *certBuilder) tls.Certificate { return c.issueCert(c.ca, c.goodTemplate()) },
	},
	{
		name:      "below an expired intermediate",
		wantError: "expired",
		build:     belowIntermediate(func(x *x509.Certificate) { x.NotAfter = timeAgo(time.Minute) }),
	},
	{
		name:      "below an intermediate that is not valid yet",
		wantError: "not yet valid",
		build:     belowIntermediate(func(x *x509.Certificate) { x.NotBefore = timeAgo(-time.Minute) }),
	},
	{name: "below an intermediate that is not presented", wantError: "unknown authority", build: func(c *certBuilder) tls.Certificate {
		return c.issueCert(c.intermediateCA(c.ca, nil), c.goodTemplate())
	}},
	{
		name:        "below an expired root",
		wantError:   "expired",
		trustBundle: alteredRoot(func(x *x509.Certificate) { x.NotAfter = timeAgo(time.Minute) }),
		build:       alteredCert(func(*x509.Certificate) {}),
	},
	{
		name:        "below a root that is not valid yet",
		wantError:   "not yet valid",
		trustBundle: alteredRoot(func(x *x509.Certificate) { x.NotBefore = timeAgo(-time.Minute) }),
		build:       alteredCert(func(*x509.Certificate) {}),
	},
	{
		name:        "below a root without the CA bit",
		wantError:   "unknown authority",
		trustBundle: alteredRoot(func(x *x509.Certificate) { x.IsCA = false }),
		build:       alteredCert(func(*x509.Certificate) {}),
	},
	{name: "the certificate itself is trusted, without a CA", trustBundle: func(c *certBuilder) []byte {
		c.ca = c.rootCA(func(x *x509.Certificate) { *x = *c.goodTemplate() })
		return c.ca.pem
	}, build: func(c *certBuilder) tls.Certificate {
		return tls.Certificate{Certificate: [][]byte{c.ca.cert.Raw}, PrivateKey: c.ca.key}
	}},

	// Sizes and counts.
	{name: "below one intermediate", build: deepChain(1)},
	{name: "below three intermediates", build: deepChain(3)},
	{name: "below four intermediates", wantError: "5 certificates", build: deepChain(4)},
	{name: "below twenty intermediates", wantError: "21 certificates", build: deepChain(20)},
	{name: "with three unrelated certificates", build: paddedChain(3)},
	{name: "with twenty unrelated certificates", wantError: "21 certificates", build: paddedChain(20)},
	{name: "with two thousand unrelated certificates", wantError: "exceeds maximum", build: paddedChain(2000)},
	{name: "with an extension of a megabyte", wantError: "exceeds maximum", build: alteredCert(func(x *x509.Certificate) {
		x.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: make([]byte, 1<<20)}}
	})},
	{name: "with ten thousand names", wantError: "exceeds maximum", build: manyNames(10000)},
	{name: "with six hundred names", wantError: "at most 4 of 16384 bytes", build: manyNames(600)},
	{name: "with 64 additional names", wantError: "65 names", build: manyNames(maxCertNames)},
	{name: "with 63 additional names", build: manyNames(maxCertNames - 1)},
	{
		name:      "below an intermediate with 65 constraints",
		wantError: "65 name constraints",
		build: belowIntermediate(func(x *x509.Certificate) {
			for n := range maxCertNames + 1 {
				x.ExcludedDNSDomains = append(x.ExcludedDNSDomains, fmt.Sprintf("d%d.example.net", n))
			}
		}),
	},
	{name: "with a key of 16,384 bits", wantError: "RSA key larger than", build: rsaPublic(16384, 65537)},
	{name: "with a key of 8,192 bits", wantError: "has 8192 bits", build: rsaPublic(8192, 65537)},
	{name: "with a key whose exponent has 31 bits", wantError: "the exponent 2147483647", build: rsaPublic(2048, 1<<31-1)},
	{name: "below an intermediate with a key of 8,192 bits", wantError: "has 8192 bits", build: func(c *certBuilder) tls.Certificate {
		cert := c.issueCert(c.ca, c.goodTemplate())
		cert.Certificate = append(cert.Certificate, rsaPublic(8192, 65537)(c).Certificate[0])
		return cert
	}},

	// Validity periods.
	{name: "expired", wantError: "expired", build: alteredCert(func(x *x509.Certificate) { x.NotAfter = timeAgo(time.Second) })},
	{
		name:      "not valid yet",
		wantError: "not yet valid",
		build:     alteredCert(func(x *x509.Certificate) { x.NotBefore = timeAgo(-time.Minute) }),
	},
	{name: "valid for another minute", build: alteredCert(func(x *x509.Certificate) { x.NotAfter = timeAgo(-time.Minute) })},

	// Usages.
	{name: "no usage", wantError: "not for", build: alteredCert(func(x *x509.Certificate) { x.ExtKeyUsage = nil })},
	{
		name:      "the other end's usage",
		wantError: "incompatible key usage",
		build:     alteredCert(func(x *x509.Certificate) { x.ExtKeyUsage = otherUsage(x.ExtKeyUsage) }),
	},
	{
		name:      "any usage",
		wantError: "not for",
		build:     alteredCert(func(x *x509.Certificate) { x.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }),
	},
	{
		name:      "code signing",
		wantError: "incompatible key usage",
		build:     alteredCert(func(x *x509.Certificate) { x.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }),
	},
	{name: "an unknown usage", wantError: "incompatible key usage", build: alteredCert(func(x *x509.Certificate) {
		x.ExtKeyUsage, x.UnknownExtKeyUsage = nil, []asn1.ObjectIdentifier{{1, 2, 3}}
	})},
	{
		name:  "both usages",
		build: alteredCert(func(x *x509.Certificate) { x.ExtKeyUsage = append(otherUsage(x.ExtKeyUsage), x.ExtKeyUsage...) }),
	},
	{name: "an unknown critical extension", wantError: "unhandled critical extension", build: alteredCert(func(x *x509.Certificate) {
		x.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
	})},

	// Algorithms.
	{name: "an Ed25519 key", build: func(c *certBuilder) tls.Certificate {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return c.issueForKey(c.ca, c.goodTemplate(), must(key, err)(c))
	}},
	{name: "a P-384 key", build: func(c *certBuilder) tls.Certificate {
		return c.issueForKey(c.ca, c.goodTemplate(), must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(c))
	}},
	{name: "an RSA key of 2,048 bits", build: func(c *certBuilder) tls.Certificate {
		return c.issueForKey(c.ca, c.goodTemplate(), must(rsa.GenerateKey(rand.Reader, 2048))(c))
	}},
	{name: "an RSA key of 1,024 bits", wantError: "1024 bits", build: func(c *certBuilder) tls.Certificate {
		return c.issueForKey(c.ca, c.goodTemplate(), weakKey(c.T))
	}},
	{
		name:      "signed with SHA-1",
		wantError: "SHA1",
		build:     alteredCert(func(x *x509.Certificate) { x.SignatureAlgorithm = x509.ECDSAWithSHA1 }),
	},
	{
		name:      "below an intermediate signed with SHA-1",
		wantError: "SHA1",
		build:     belowIntermediate(func(x *x509.Certificate) { x.SignatureAlgorithm = x509.ECDSAWithSHA1 }),
	},

	// Names.
	{name: "the correct name among others", build: namedCert([]string{"spiffe://example.org/a", "{san}"}, "b.example")},
	{name: "the correct name twice", build: namedCert([]string{"{san}", "{san}"})},
	{name: "a DNS name", acceptedByDNS: true, build: namedCert(nil, "{dns}")},
	{name: "the names of two known peers", ambiguousName: true, build: namedCert([]string{"{san}"}, "{dns}")},
	{name: "another URI", unknownName: true, build: uriVariant(appendText("-blue"))},
	{name: "the beginning of the URI", unknownName: true, build: uriVariant(replaceText("/inventory", ""), replaceText("/writer", ""))},
	{name: "the URI and a slash", unknownName: true, build: uriVariant(appendText("/"))},
	{name: "the URI and a query", unknownName: true, build: uriVariant(appendText("?a"))},
	{name: "the URI and a fragment", unknownName: true, build: uriVariant(appendText("#a"))},
	{name: "the URI with a user", unknownName: true, build: uriVariant(replaceText("//", "//a@"))},
	{name: "the URI with a port", unknownName: true, build: uriVariant(replaceText(".org/", ".org:443/"))},
	{name: "the URI escaped", unknownName: true, build: uriVariant(replaceText("slicefeed", "%73licefeed"))},
	{name: "the URI with a dot-dot segment", unknownName: true, build: uriVariant(replaceText("/slicefeed", "/x/../slicefeed"))},
	{name: "the URI with its host in capitals", unknownName: true, build: uriVariant(replaceText("example", "EXAMPLE"))},
	{name: "the URI with its path in capitals", unknownName: true, build: uriVariant(replaceText("slicefeed", "SLICEFEED"))},
	{name: "the URI with its scheme in capitals", build: uriVariant(replaceText("spiffe", "SPIFFE"))}, // equal by RFC 3986
	{name: "the URI and an empty fragment", build: uriVariant(appendText("#"))},                       // has no meaning
	{name: "the URI and a NUL", wantError: "parse", build: uriVariant(appendText("\x00.evil.example"))},
	{name: "the URI and a newline", wantError: "parse", build: uriVariant(appendText("\n"))},
	{name: "the URI as a DNS name", unknownName: true, build: rawNameCert(dnsName, func(c *certBuilder) string { return c.san })},
	{name: "the URI as an e-mail address", unknownName: true, build: rawNameCert(mailName, func(c *certBuilder) string { return c.san })},
	{name: "the DNS name as a URI", unknownName: true, build: rawNameCert(uriName, func(c *certBuilder) string { return c.dns })},
	{name: "another DNS name", unknownName: true, build: dnsVariant(appendText(".other"))},
	{name: "the DNS name in capitals", unknownName: true, build: dnsVariant(strings.ToUpper)},
	{name: "the DNS name and a dot", unknownName: true, build: dnsVariant(appendText("."))},
	{name: "the DNS name and a NUL", unknownName: true, build: dnsVariant(appendText("\x00.evil.example"))},
	{name: "the DNS name and a space", unknownName: true, build: dnsVariant(appendText(" "))},
	{name: "a wildcard", unknownName: true, build: namedCert(nil, "*.example")},
	{name: "a wildcard for everything", unknownName: true, build: namedCert(nil, "*")},
	{name: "a subdomain", unknownName: true, build: namedCert(nil, "a.{dns}")},
	{name: "the parent domain", unknownName: true, build: namedCert(nil, "example")},
	{
		name:        "an IP address",
		unknownName: true,
		build:       alteredCert(func(x *x509.Certificate) { x.URIs, x.IPAddresses = nil, []net.IP{net.IPv4(127, 0, 0, 1)} }),
	},
	{
		name:        "the name as the common name",
		unknownName: true,
		build:       alteredCert(func(x *x509.Certificate) { x.Subject.CommonName, x.URIs = x.URIs[0].String(), nil }),
	},
	{name: "no name", unknownName: true, build: alteredCert(func(x *x509.Certificate) { x.URIs = nil })},
}

func bothCAs(c *certBuilder) []byte {
	return append(append([]byte{}, c.ca.pem...), c.verifierCA.pem...)
}

func otherUsage(usages []x509.ExtKeyUsage) []x509.ExtKeyUsage {
	if usages[0] == x509.ExtKeyUsageClientAuth {
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
}

func selfSigned(c *certBuilder) tls.Certificate {
	self := c.rootCA(func(x *x509.Certificate) { *x = *c.goodTemplate() })
	return tls.Certificate{Certificate: [][]byte{self.cert.Raw}, PrivateKey: self.key}
}

// belowIntermediate returns a good certificate from an altered intermediate.
func belowIntermediate(how func(*x509.Certificate)) func(*certBuilder) tls.Certificate {
	return func(c *certBuilder) tls.Certificate {
		ca := c.intermediateCA(c.ca, how)
		return c.issueCert(ca, c.goodTemplate(), ca)
	}
}

// alteredRoot replaces the presenter's CA, also for the verifier.
func alteredRoot(how func(*x509.Certificate)) func(*certBuilder) []byte {
	return func(c *certBuilder) []byte {
		c.ca = c.rootCA(how)
		return c.ca.pem
	}
}

func rootForOtherNames(c *certBuilder) []byte {
	return alteredRoot(func(x *x509.Certificate) { x.PermittedURIDomains = []string{"example.net"} })(c)
}

func manyNames(n int) func(*certBuilder) tls.Certificate {
	return alteredCert(func(x *x509.Certificate) {
		for i := range n {
			x.DNSNames = append(x.DNSNames, fmt.Sprintf("name-%d.many-names.example", i))
		}
	})
}

// Tags of GeneralName (RFC 5280).
const (
	mailName = 1
	dnsName  = 2
	uriName  = 6
)

// rsaPublic returns a certificate for an RSA public key of that size without a private key.
func rsaPublic(bits uint, exponent int) func(*certBuilder) tls.Certificate {
	return func(c *certBuilder) tls.Certificate {
		key := must(rsa.GenerateKey(rand.Reader, 2048))(c)
		cert := c.issueForKey(c.ca, c.goodTemplate(), fakePublicKey{key, &rsa.PublicKey{N: oddNumber(bits), E: exponent}})
		cert.PrivateKey = key
		return cert
	}
}

// rawNameCert returns a certificate whose only name has exactly these bytes, which a library might refuse
// to encode.
func rawNameCert(tag int, name func(*certBuilder) string) func(*certBuilder) tls.Certificate {
	return func(c *certBuilder) tls.Certificate {
		all := []asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: []byte(name(c))}}
		tmpl := c.goodTemplate()
		tmpl.URIs = nil
		tmpl.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: must(asn1.Marshal(all))(c)}}
		return c.issueCert(c.ca, tmpl)
	}
}

func uriVariant(how ...func(string) string) func(*certBuilder) tls.Certificate {
	return rawNameCert(uriName, func(c *certBuilder) string { return applyAll(c.san, how) })
}

func dnsVariant(how ...func(string) string) func(*certBuilder) tls.Certificate {
	return rawNameCert(dnsName, func(c *certBuilder) string { return applyAll(c.dns, how) })
}

func applyAll(name string, how []func(string) string) string {
	for _, f := range how {
		name = f(name)
	}
	return name
}

func appendText(end string) func(string) string {
	return func(name string) string { return name + end }
}

func replaceText(old, replacement string) func(string) string {
	return func(name string) string { return strings.Replace(name, old, replacement, 1) }
}

func TestCertificateMatrixCoversBothOutcomes(t *testing.T) {
	accepted, rejected := 0, 0
	seen := map[string]bool{}
	for _, p := range certMatrix {
		if seen[p.name] {
			t.Errorf("two cases are named %q", p.name)
		}
		seen[p.name] = true
		if p.wantError == "" && !p.unknownName {
			accepted++
		} else {
			rejected++
		}
	}
	if accepted < 15 || rejected < 50 {
		t.Errorf("%d cases accepted and %d rejected", accepted, rejected)
	}
}
