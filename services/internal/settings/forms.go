package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// Form is how a text must look.
type Form struct {
	Pattern string // regular expression for the whole text, which the charts' schemas have too; empty: any
	Want    string // such a text
}

const (
	label = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`
	host  = `([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]+\])`
	port  = `:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])`
)

// Forms are the forms of settings, by their placeholder or type.
var Forms = map[string]Form{
	"bool":        {"", "true or false"},
	"duration":    {"", "a duration such as 5s"},
	"int":         {"", "a whole number"},
	"string":      {"", "text"},
	"uint16":      {"", "a whole number"},
	"file":        {"", "a file"},
	"program":     {"", "a program"},
	"JSON":        {"", "JSON records"},
	"port":        {"", "a port number"},
	"host:port":   {host + port, "host:port, such as inventory.example.org:9443"},
	"[host]:port": {host + `?(` + port + `|:0)`, "host:port or :port of this machine, such as :9443"},
	"address:port": {
		`\[?[0-9A-Za-z._:-]*[1-9A-Za-z][0-9A-Za-z._:-]*\]?(` + port + `|:0)`,
		"host:port of one address, such as 127.0.0.1:6060, since this listener has no authentication",
	},
	"URI or DNS name": {
		`([a-z][a-z0-9+.-]*://[^/?#@*]+(/[^?#*]*)?|` + label + `(\.` + label + `)*)`,
		"a URI such as spiffe://example.org/inventory, or a lower-case DNS name",
	},
	"URL":             {`https://[^/].*`, "a URL such as https://api.ionos.com"},
	"UUID":            {`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`, "a UUID"},
	"CIDR":            {`[0-9a-fA-F.:]+/[0-9]{1,3}`, "a CIDR such as 10.0.1.0/24"},
	"LAN number":      {`[1-9][0-9]{0,9}`, "the number of a LAN, such as 2"},
	"port or range":   {`[0-9]+(-[0-9]+)?`, "a port such as 8080, or a range such as 30000-32767"},
	"path":            {`/.*`, "a path that starts with a slash"},
	"DNS label":       {label, "a DNS label: 1 to 63 of a-z, 0-9 and -, such as blue"},
	"short DNS label": {`[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?`, "a DNS label of at most 53 characters, such as blue"}, // with slicefeed- 63
	"DNS name":        {label + `(\.` + label + `)*`, "a DNS name, such as shop-nodes"},
	"label key": {
		`(` + label + `(\.` + label + `)*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?`,
		"a label key such as topology.kubernetes.io/zone",
	},
	"label value":         {`[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?`, "a label value: at most 63 letters, digits and -_."},
	"namespace or *":      {`(\*|` + label + `)`, "the name of a namespace, or * alone for all"},
	"namespace/name":      {label + `/` + label, "a Service, such as shop/web"},
	"namespace/name or *": {`(\*|` + label + `)/(\*|` + label + `)`, "namespace/name, of which either part can be *"},
	"secured=consuming":   {`[^=,]+=[^=,]+`, "both names of a zone, such as de/fra=zone-a"},
	"namespace/label selector, or namespace/kind/name": {
		label + `/.+`,
		"a namespace and a label selector, or a kind and a name, such as ingress/app=gateway or ingress/deployment/gateway",
	},
}

// Check returns what a text should be if it does not have a form.
func Check(form, text string) (want string) {
	if f := Forms[form]; f.Pattern != "" && !regexp.MustCompile("^("+f.Pattern+")$").MatchString(text) {
		return f.Want
	}
	return ""
}

// Subnet is a CIDR. Its text may also be the form of an older tool: the first octets of an IPv4
// network, such as "10.0.1." or "10.0.1" for 10.0.1.0/24.
type Subnet struct{ netip.Prefix }

// UnmarshalText parses a subnet. It rejects host bits, which suggest a typing error, and all addresses.
func (s *Subnet) UnmarshalText(text []byte) error {
	in := strings.TrimSpace(string(text))
	if octets := strings.Split(strings.TrimSuffix(in, "."), "."); !strings.ContainsAny(in, "/:") && len(octets) < 4 {
		in = strings.Join(octets, ".") + strings.Repeat(".0", 4-len(octets)) + fmt.Sprintf("/%d", 8*len(octets))
	}
	p, err := netip.ParsePrefix(in)
	switch {
	case err != nil:
		return errors.New(Forms["CIDR"].Want)
	case p != p.Masked():
		return fmt.Errorf("a CIDR without host bits: %s, or the single address as %s/%d", p.Masked(), p.Addr(), p.Addr().BitLen())
	case p.Addr().Is4In6():
		return errors.New("an IPv4 CIDR in IPv4 form")
	case p.Bits() == 0:
		return errors.New("the CIDRs of the private network, not all addresses")
	}
	s.Prefix = p
	return nil
}

// ToPrefixes converts subnets to prefixes.
func ToPrefixes(subnets []Subnet) []netip.Prefix {
	out := make([]netip.Prefix, len(subnets))
	for i, s := range subnets {
		out[i] = s.Prefix
	}
	return out
}
