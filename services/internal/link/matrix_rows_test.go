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

// matrix are the certificates that a peer may come with. In names, {san} and {dns} are the good
// ones of the presenter's role.
var matrix = []presented{
	{name: "a good certificate", is: altered(func(*x509.Certificate) {})},

	// Who signed it.
	{name: "signed by the judge's own CA", refused: "unknown authority", is: func(c *casting) tls.Certificate { return c.issue(c.judges, c.good()) }},
	{name: "signed by a CA of the same name and another key", refused: "unknown authority", is: func(c *casting) tls.Certificate {
		return c.issue(c.root(func(x *x509.Certificate) { x.Subject = c.ca.cert.Subject }), c.good())
	}},
	{name: "signed by either of two trusted CAs", trusts: both, is: altered(func(*x509.Certificate) {})},
	{name: "signed by either of two trusted CAs: the other one", trusts: both, is: func(c *casting) tls.Certificate { return c.issue(c.judges, c.good()) }},
	{name: "signed by neither of two trusted CAs", trusts: both, refused: "unknown authority", is: func(c *casting) tls.Certificate {
		return c.issue(c.root(func(*x509.Certificate) {}), c.good())
	}},
	{name: "self-signed", refused: "unknown authority", is: selfSigned},
	{name: "the CA's own certificate without its key", refused: "invalid signature", is: func(c *casting) tls.Certificate {
		return tls.Certificate{Certificate: [][]byte{c.issue(c.ca, c.good()).Certificate[0]}, PrivateKey: c.key()}
	}},
	{name: "the CA itself", refused: "not for", is: func(c *casting) tls.Certificate {
		return tls.Certificate{Certificate: [][]byte{c.ca.cert.Raw}, PrivateKey: c.ca.key}
	}},
	{name: "signed with a peer's own certificate, as if that were a CA", refused: "parent certificate cannot sign", is: func(c *casting) tls.Certificate {
		key := c.key()
		peer := c.authority(c.sign(c.ca, c.good(), key), key)
		return c.issue(peer, c.good(), peer)
	}},
	{name: "below an intermediate without the CA bit", refused: "parent certificate cannot sign", is: below(func(x *x509.Certificate) { x.IsCA = false })},
	{name: "below an intermediate whose path is too long", refused: "too many intermediates", is: func(c *casting) tls.Certificate {
		first := c.below(c.ca, func(x *x509.Certificate) { x.MaxPathLenZero = true })
		second := c.below(first, nil)
		return c.issue(second, c.good(), second, first)
	}},
	{name: "below an intermediate that is for the other usage", refused: "incompatible key usage", is: func(c *casting) tls.Certificate {
		ca := c.below(c.ca, func(x *x509.Certificate) { x.ExtKeyUsage = others(c.usages) })
		return c.issue(ca, c.good(), ca)
	}},
	{name: "below an intermediate that may sign such names", is: below(func(x *x509.Certificate) { x.PermittedURIDomains = []string{"example.org"} })},
	{name: "below an intermediate that may only sign other names", refused: "not authorized to sign for this name", is: below(func(x *x509.Certificate) { x.PermittedURIDomains = []string{"example.net"} })},
	{name: "below an intermediate that may not sign such names", refused: "not authorized to sign for this name", is: below(func(x *x509.Certificate) { x.ExcludedURIDomains = []string{"example.org"} })},
	{name: "below a root that may only sign other names", refused: "not authorized to sign for this name", trusts: onlyOthers, is: func(c *casting) tls.Certificate { return c.issue(c.ca, c.good()) }},
	{name: "below an expired intermediate", refused: "expired", is: below(func(x *x509.Certificate) { x.NotAfter = ago(time.Minute) })},
	{name: "below an intermediate that is not valid yet", refused: "not yet valid", is: below(func(x *x509.Certificate) { x.NotBefore = ago(-time.Minute) })},
	{name: "below an intermediate that is not shown", refused: "unknown authority", is: func(c *casting) tls.Certificate { return c.issue(c.below(c.ca, nil), c.good()) }},
	{name: "below an expired root", refused: "expired", trusts: rootAltered(func(x *x509.Certificate) { x.NotAfter = ago(time.Minute) }), is: altered(func(*x509.Certificate) {})},
	{name: "below a root that is not valid yet", refused: "not yet valid", trusts: rootAltered(func(x *x509.Certificate) { x.NotBefore = ago(-time.Minute) }), is: altered(func(*x509.Certificate) {})},
	{name: "below a root without the CA bit", refused: "unknown authority", trusts: rootAltered(func(x *x509.Certificate) { x.IsCA = false }), is: altered(func(*x509.Certificate) {})},
	{name: "trusted by itself, without a CA", trusts: func(c *casting) []byte {
		c.ca = c.root(func(x *x509.Certificate) { *x = *c.good() })
		return c.ca.pem
	}, is: func(c *casting) tls.Certificate {
		return tls.Certificate{Certificate: [][]byte{c.ca.cert.Raw}, PrivateKey: c.ca.key}
	}},

	// How much of it.
	{name: "below one intermediate", is: deep(1)},
	{name: "below three intermediates", is: deep(3)},
	{name: "below four intermediates", refused: "5 certificates", is: deep(4)},
	{name: "below twenty intermediates", refused: "21 certificates", is: deep(20)},
	{name: "beside three others", is: crowded(3)},
	{name: "beside twenty others", refused: "21 certificates", is: crowded(20)},
	{name: "beside two thousand others", refused: "exceeds maximum", is: crowded(2000)},
	{name: "with a megabyte in it", refused: "exceeds maximum", is: altered(func(x *x509.Certificate) {
		x.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: make([]byte, 1<<20)}}
	})},
	{name: "with ten thousand names", refused: "exceeds maximum", is: manyNames(10000)},
	{name: "with six hundred names", refused: "at most 4 of 16384 bytes", is: manyNames(600)},
	{name: "with 64 names more", refused: "65 names", is: manyNames(maxNames)},
	{name: "with 63 names more", is: manyNames(maxNames - 1)},
	{name: "below an intermediate with 65 constraints", refused: "65 name constraints", is: below(func(x *x509.Certificate) {
		for n := range maxNames + 1 {
			x.ExcludedDNSDomains = append(x.ExcludedDNSDomains, fmt.Sprintf("d%d.example.net", n))
		}
	})},
	{name: "with a key of 16,384 bits", refused: "RSA key larger than", is: rsaPublic(16384, 65537)},
	{name: "with a key of 8,192 bits", refused: "has 8192 bits", is: rsaPublic(8192, 65537)},
	{name: "with a key whose exponent has 31 bits", refused: "the exponent 2147483647", is: rsaPublic(2048, 1<<31-1)},
	{name: "below an intermediate with a key of 8,192 bits", refused: "has 8192 bits", is: func(c *casting) tls.Certificate {
		cert := c.issue(c.ca, c.good())
		cert.Certificate = append(cert.Certificate, rsaPublic(8192, 65537)(c).Certificate[0])
		return cert
	}},

	// When.
	{name: "expired", refused: "expired", is: altered(func(x *x509.Certificate) { x.NotAfter = ago(time.Second) })},
	{name: "not valid yet", refused: "not yet valid", is: altered(func(x *x509.Certificate) { x.NotBefore = ago(-time.Minute) })},
	{name: "valid for a minute more", is: altered(func(x *x509.Certificate) { x.NotAfter = ago(-time.Minute) })},

	// What for.
	{name: "no usage", refused: "not for", is: altered(func(x *x509.Certificate) { x.ExtKeyUsage = nil })},
	{name: "the other side's usage", refused: "incompatible key usage", is: altered(func(x *x509.Certificate) { x.ExtKeyUsage = others(x.ExtKeyUsage) })},
	{name: "any usage", refused: "not for", is: altered(func(x *x509.Certificate) { x.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} })},
	{name: "code signing", refused: "incompatible key usage", is: altered(func(x *x509.Certificate) { x.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} })},
	{name: "an unknown usage", refused: "incompatible key usage", is: altered(func(x *x509.Certificate) {
		x.ExtKeyUsage, x.UnknownExtKeyUsage = nil, []asn1.ObjectIdentifier{{1, 2, 3}}
	})},
	{name: "both usages", is: altered(func(x *x509.Certificate) { x.ExtKeyUsage = append(others(x.ExtKeyUsage), x.ExtKeyUsage...) })},
	{name: "an unknown critical extension", refused: "unhandled critical extension", is: altered(func(x *x509.Certificate) {
		x.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
	})},

	// By which algorithms.
	{name: "an Ed25519 key", is: func(c *casting) tls.Certificate {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return c.keyed(c.ca, c.good(), must(key, err)(c))
	}},
	{name: "a P-384 key", is: func(c *casting) tls.Certificate {
		return c.keyed(c.ca, c.good(), must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(c))
	}},
	{name: "an RSA key of 2,048 bits", is: func(c *casting) tls.Certificate {
		return c.keyed(c.ca, c.good(), must(rsa.GenerateKey(rand.Reader, 2048))(c))
	}},
	{name: "an RSA key of 1,024 bits", refused: "1024 bits", is: func(c *casting) tls.Certificate {
		return c.keyed(c.ca, c.good(), weakKey(c.T))
	}},
	{name: "a signature by SHA-1", refused: "SHA1", is: altered(func(x *x509.Certificate) { x.SignatureAlgorithm = x509.ECDSAWithSHA1 })},
	{name: "below an intermediate signed by SHA-1", refused: "SHA1", is: below(func(x *x509.Certificate) { x.SignatureAlgorithm = x509.ECDSAWithSHA1 })},

	// Whose.
	{name: "the good name among others", is: named([]string{"spiffe://example.org/a", "{san}"}, "b.example")},
	{name: "the good name twice", is: named([]string{"{san}", "{san}"})},
	{name: "a DNS name", byDNS: true, is: named(nil, "{dns}")},
	{name: "the names of two known peers", twoKnown: true, is: named([]string{"{san}"}, "{dns}")},
	{name: "another URI", stranger: true, is: uri(add("-blue"))},
	{name: "the beginning of the URI", stranger: true, is: uri(swap("/inventory", ""), swap("/writer", ""))},
	{name: "the URI and a slash", stranger: true, is: uri(add("/"))},
	{name: "the URI and a query", stranger: true, is: uri(add("?a"))},
	{name: "the URI and a fragment", stranger: true, is: uri(add("#a"))},
	{name: "the URI with a user", stranger: true, is: uri(swap("//", "//a@"))},
	{name: "the URI with a port", stranger: true, is: uri(swap(".org/", ".org:443/"))},
	{name: "the URI escaped", stranger: true, is: uri(swap("slicefeed", "%73licefeed"))},
	{name: "the URI by a detour", stranger: true, is: uri(swap("/slicefeed", "/x/../slicefeed"))},
	{name: "the URI with its host in capitals", stranger: true, is: uri(swap("example", "EXAMPLE"))},
	{name: "the URI with its path in capitals", stranger: true, is: uri(swap("slicefeed", "SLICEFEED"))},
	{name: "the URI with its scheme in capitals", is: uri(swap("spiffe", "SPIFFE"))}, // the same URI, by RFC 3986
	{name: "the URI and an empty fragment", is: uri(add("#"))},                       // which says nothing
	{name: "the URI with a NUL behind it", refused: "parse", is: uri(add("\x00.evil.example"))},
	{name: "the URI with a line's end behind it", refused: "parse", is: uri(add("\n"))},
	{name: "the URI as a DNS name", stranger: true, is: spelt(dnsName, func(c *casting) string { return c.san })},
	{name: "the URI as an e-mail address", stranger: true, is: spelt(mailName, func(c *casting) string { return c.san })},
	{name: "the DNS name as a URI", stranger: true, is: spelt(uriName, func(c *casting) string { return c.dns })},
	{name: "another DNS name", stranger: true, is: dns(add(".other"))},
	{name: "the DNS name in capitals", stranger: true, is: dns(strings.ToUpper)},
	{name: "the DNS name and a dot", stranger: true, is: dns(add("."))},
	{name: "the DNS name with a NUL behind it", stranger: true, is: dns(add("\x00.evil.example"))},
	{name: "the DNS name and a space", stranger: true, is: dns(add(" "))},
	{name: "a wildcard", stranger: true, is: named(nil, "*.example")},
	{name: "a wildcard for everything", stranger: true, is: named(nil, "*")},
	{name: "a domain below", stranger: true, is: named(nil, "a.{dns}")},
	{name: "a domain above", stranger: true, is: named(nil, "example")},
	{name: "an IP address", stranger: true, is: altered(func(x *x509.Certificate) { x.URIs, x.IPAddresses = nil, []net.IP{net.IPv4(127, 0, 0, 1)} })},
	{name: "the name as the common name", stranger: true, is: altered(func(x *x509.Certificate) { x.Subject.CommonName, x.URIs = x.URIs[0].String(), nil })},
	{name: "no name", stranger: true, is: altered(func(x *x509.Certificate) { x.URIs = nil })},
}

func both(c *casting) []byte { return append(append([]byte{}, c.ca.pem...), c.judges.pem...) }

func others(usages []x509.ExtKeyUsage) []x509.ExtKeyUsage {
	if usages[0] == x509.ExtKeyUsageClientAuth {
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
}

func selfSigned(c *casting) tls.Certificate {
	self := c.root(func(x *x509.Certificate) { *x = *c.good() })
	return tls.Certificate{Certificate: [][]byte{self.cert.Raw}, PrivateKey: self.key}
}

// below is a good certificate of an intermediate that is altered as told.
func below(how func(*x509.Certificate)) func(*casting) tls.Certificate {
	return func(c *casting) tls.Certificate {
		ca := c.below(c.ca, how)
		return c.issue(ca, c.good(), ca)
	}
}

// rootAltered replaces the presenter's CA, for the judge too.
func rootAltered(how func(*x509.Certificate)) func(*casting) []byte {
	return func(c *casting) []byte {
		c.ca = c.root(how)
		return c.ca.pem
	}
}

func onlyOthers(c *casting) []byte {
	return rootAltered(func(x *x509.Certificate) { x.PermittedURIDomains = []string{"example.net"} })(c)
}

func manyNames(n int) func(*casting) tls.Certificate {
	return altered(func(x *x509.Certificate) {
		for i := range n {
			x.DNSNames = append(x.DNSNames, fmt.Sprintf("name-%d.of-a-crowd.example", i))
		}
	})
}

// The tags of a general name.
const (
	mailName = 1
	dnsName  = 2
	uriName  = 6
)

// rsaPublic is a certificate for an RSA key of that size, which need not be one.
func rsaPublic(bits uint, exponent int) func(*casting) tls.Certificate {
	return func(c *casting) tls.Certificate {
		key := must(rsa.GenerateKey(rand.Reader, 2048))(c)
		cert := c.keyed(c.ca, c.good(), oversized{key, &rsa.PublicKey{N: number(bits), E: exponent}})
		cert.PrivateKey = key
		return cert
	}
}

// spelt is a certificate whose only name is in these very bytes, which no library might write.
func spelt(tag int, name func(*casting) string) func(*casting) tls.Certificate {
	return func(c *casting) tls.Certificate {
		all := []asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: []byte(name(c))}}
		tmpl := c.good()
		tmpl.URIs = nil
		tmpl.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: must(asn1.Marshal(all))(c)}}
		return c.issue(c.ca, tmpl)
	}
}

func uri(how ...func(string) string) func(*casting) tls.Certificate {
	return spelt(uriName, func(c *casting) string { return through(c.san, how) })
}

func dns(how ...func(string) string) func(*casting) tls.Certificate {
	return spelt(dnsName, func(c *casting) string { return through(c.dns, how) })
}

func through(name string, how []func(string) string) string {
	for _, f := range how {
		name = f(name)
	}
	return name
}

func add(end string) func(string) string { return func(name string) string { return name + end } }

func swap(old, now string) func(string) string {
	return func(name string) string { return strings.Replace(name, old, now, 1) }
}

func TestTheMatrixHasRowsOfEachKind(t *testing.T) {
	accepted, refused := 0, 0
	seen := map[string]bool{}
	for _, p := range matrix {
		if seen[p.name] {
			t.Errorf("two rows are named %q", p.name)
		}
		seen[p.name] = true
		if p.refused == "" && !p.stranger {
			accepted++
		} else {
			refused++
		}
	}
	if accepted < 15 || refused < 50 {
		t.Errorf("%d rows are accepted and %d refused", accepted, refused)
	}
}
