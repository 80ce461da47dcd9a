package sources

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

var defaults = Source{
	Name: "default", Address: "unused.example:1", SAN: "unused.example", CAFile: "peer-ca.pem",
	CIDRs: subnets("0.0.0.0/0"), Namespaces: []string{"unused"},
	Ports: []PortRange{{30000, 32767}},
}

func subnets(cidrs ...string) (all []settings.Subnet) {
	for _, c := range cidrs {
		all = append(all, settings.Subnet{Prefix: netip.MustParsePrefix(c)})
	}
	return all
}

const exampleFile = `
sources:
- name: green
  address: "[2001:db8::5]:9443"
  san: inventory.green.example
  cidrs: [2001:db8:1::/64]
# the other one
- name: blue
  address: inventory.blue.example:9443
  san: spiffe://example.org/slicefeed/inventory-blue
  caFile: blue-ca.pem
  cidrs: [10.0.0.0/24, 10.0.1.7/32]
  namespaces: [web, shop, web]
  ports: ["30000-32767", 8080]
`

func TestParsesFile(t *testing.T) {
	want := []Source{{
		Name: "blue", Address: "inventory.blue.example:9443", SAN: "spiffe://example.org/slicefeed/inventory-blue",
		CAFile: "/etc/slicefeed/blue-ca.pem", Namespaces: []string{"shop", "web"},
		CIDRs: subnets("10.0.0.0/24", "10.0.1.7/32"),
		Ports: []PortRange{{30000, 32767}, {8080, 8080}},
	}, {
		Name: "green", Address: "[2001:db8::5]:9443", SAN: "inventory.green.example", CAFile: "peer-ca.pem",
		CIDRs: subnets("2001:db8:1::/64"), Ports: []PortRange{{30000, 32767}},
	}}
	got, err := Parse([]byte(exampleFile), "/etc/slicefeed", defaults)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// validSource is a source to which tests add fields.
const validSource = "sources:\n- name: blue\n  address: a.example:1\n  san: a.example\n"

func TestReportsAllProblems(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"an empty file", "", []string{`no sources: want "sources:" and a list`}},
		{"only a comment", "# none yet\n", []string{"no sources: want"}},
		{"nothing", "~", []string{"no sources: want"}},
		{"a list without the top-level field", "- name: blue", []string{`line 1: cannot unmarshal !!seq`}},
		{"no sources", "sources: []", []string{"no sources: want"}},
		{"not a list", "sources:\n  blue: {}", []string{"line 2: cannot unmarshal !!map"}},
		{"a misspelled top-level field", "source: []", []string{`unknown field "source"; want sources`, "no sources"}},
		{"not YAML", "\tsources", []string{"yaml"}},
		{"two documents", validSource + "  cidrs: [10.0.0.0/24]\n---\nsources: []", []string{"more than one"}},
		{"a source that is a string", "sources: [blue]", []string{"line 1: cannot unmarshal !!str `blue`"}},
		{"an empty source", "sources:\n-", []string{`source 1 (""): name is not set: want a DNS label`, "cidrs is not set"}},
		{"all required fields", "sources:\n- {}", []string{
			`source 1 (""): name is not set: want a DNS label`,
			`source 1 (""): address is not set: want host:port`,
			`source 1 (""): san is not set: want a URI`,
			`source 1 (""): cidrs is not set: want a CIDR`,
		}},
		{"a misspelled field does not widen the allowlist", validSource + "  cidrs: [10.0.0.0/24]\n  namespace: [web]\n  PORTS: [1]\n  color: red", []string{
			`source 1 ("blue"): line 6: unknown field "namespace"; want one of name`,
			`source 1 ("blue"): line 7: unknown field "PORTS"; want one of name`,
			`source 1 ("blue"): line 8: unknown field "color"; want one of name, address, san, caFile, cidrs, namespaces, ports`,
		}},
		{"a duplicate field", validSource + "  cidrs: [10.0.0.0/24]\n  cidrs: [10.0.0.0/8]", []string{`line 6: mapping key "cidrs" already defined at line 5`}},
		{"an empty list does not widen the allowlist", validSource + "  cidrs: []\n  namespaces: []\n  ports:", []string{
			`source 1 ("blue"): line 5: cidrs: want a list, each`, "line 6: namespaces: want a list", "ports: want a list",
		}},
		{"one value instead of a list", validSource + "  cidrs: 10.0.0.0/24\n  ports: 8080\n  namespaces: {web: shop}", []string{
			`cidrs: want a list, each a CIDR such as 10.0.1.0/24`, `ports: want a list`, `line 7: cannot unmarshal !!map`,
		}},
		{"invalid entries", validSource + "  cidrs: [~, 10.0.0.1, \"\"]", []string{`cidrs: "": want a CIDR`, `cidrs: "10.0.0.1": want a CIDR`}},
		{"a list in a list", validSource + "  cidrs: [[10.0.0.0/24]]", []string{"line 5: cannot unmarshal !!seq"}},
		{"a source that contains itself", "sources:\n- &blue\n  name: blue\n  cidrs: [*blue]", []string{"line 2: cannot unmarshal !!map"}},
		{"host bits", validSource + "  cidrs: [10.0.0.1/24]", []string{`source 1 ("blue"): line 5: cidrs: "10.0.0.1/24": want a CIDR without host bits: 10.0.0.0/24, or the single address as 10.0.0.1/32`}},
		{"invalid CIDRs", validSource + "  cidrs: [10.0.0.1, \"10.0.1.\", 10.0.0.0/33, nodes/24]", []string{`"10.0.0.1": want a CIDR`, `"10.0.1.": want a CIDR`, `"10.0.0.0/33": want`, `"nodes/24": want`}},
		{"an IPv4 CIDR in IPv6 form", validSource + "  cidrs: [\"::ffff:10.0.0.0/120\"]", []string{"want an IPv4 CIDR in IPv4 form"}},
		{"ports", validSource + "  cidrs: [10.0.0.0/24]\n  ports: [0, 65536, 80-79, http, 0x50, -1]", []string{`ports: "0": want a port such as 8080`, `"65536": want`, `"80-79": want`, `"http": want`, `"0x50": want`, `"-1": want`}},
		{"namespaces", validSource + "  cidrs: [10.0.0.0/24]\n  namespaces: [Web, \"*\", team/web]", []string{`namespaces: "Web": want a DNS label`, `"*": want`, `"team/web": want`}},
		{"names that would be equal in slice names", "sources: [{name: Blue}, {name: blue_1}, {name: blue.1}, {name: -blue}]", []string{
			`source 1 ("Blue"): line 1: name: "Blue": want a DNS label`, `name: "blue_1": want`, `name: "blue.1": want`, `name: "-blue": want`,
		}},
		{"a name that is too long for a label", "sources: [{name: " + strings.Repeat("b", 64) + "}]", []string{"want a DNS label"}},
		{"a duplicate name", "sources:\n- name: blue\n- name: green\n- name: blue", []string{`source 3 ("blue"): duplicate name, as of 1`}},
		{"addresses", "sources: [{address: a.example}, {address: \":1\"}, {address: \"a.example:http\"}, {address: \"dns:///a.example:1\"}, {address: \"a.example:0\"}, {address: \"2001:db8::1:1\"}]", []string{
			`source 1 (""): line 1: address: "a.example": want host:port`, `":1": want`, `"a.example:http": want`, `"dns:///a.example:1": want`, `"a.example:0": want`, `"2001:db8::1:1": want`,
		}},
		{"sans", "sources: [{san: \"*.example\"}, {san: \"spiffe://example.org/x?y\"}, {san: [a.example]}]", []string{`source 1 (""): line 1: san: "*.example": want a complete name without a wildcard`, `"spiffe://example.org/x?y": want a URI`, `san: want a URI such as spiffe://example.org/inventory, or a lower-case DNS name, not a list`}},
		{"a file that is too large", "#" + strings.Repeat(" ", maxFileSize), []string{"want at most 256 KiB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := Parse([]byte(c.text), "", defaults)
			if err == nil {
				t.Fatalf("accepted: %v", all)
			}
			if all != nil {
				t.Errorf("sources despite an error: %v", all)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("missing: %s\n%v", want, err)
				}
			}
		})
	}
}

func TestReportsProblemsInOrderOfSources(t *testing.T) {
	_, err := Parse([]byte("sources:\n- ports: [0]\n  name: Blue\n- name: green\n  san: \"*\"\n"), "", defaults)
	if problems := strings.Count(err.Error(), "\n"); problems < 2 {
		t.Fatalf("want several problems: %v", err)
	}
	last := ""
	for text := range strings.SplitSeq(err.Error(), "\n") {
		if source, _, _ := strings.Cut(text, ":"); source < last {
			t.Errorf("%s after %s:\n%v", source, last, err)
		} else {
			last = source
		}
	}
}

func TestCAFileDefaultsToSharedCA(t *testing.T) {
	for _, c := range []struct{ name, field, peerCA, want string }{
		{"beside the file", "caFile: ca/blue.pem", "peer.pem", "/etc/slicefeed/ca/blue.pem"},
		{"absolute path", "caFile: /tls/blue.pem", "peer.pem", "/tls/blue.pem"},
		{"the default", "", "peer.pem", "peer.pem"},
		{"an empty value is none", `caFile: ""`, "peer.pem", "peer.pem"},
		{"no value is none", "caFile:", "peer.pem", "peer.pem"},
		{"none at all", "", "", ""},
		{"none at all, with an empty value", `caFile: ""`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := Parse([]byte(validSource+"  cidrs: [10.0.0.0/24]\n  "+c.field), "/etc/slicefeed", Source{CAFile: c.peerCA})
			if c.want == "" {
				if err == nil || !strings.Contains(err.Error(), "TLS_PEER_CA_FILE") {
					t.Errorf("without any CA: %v, %v", all, err)
				}
				return
			}
			if err != nil || all[0].CAFile != c.want {
				t.Errorf("got %v, %v; want %s", all, err, c.want)
			}
		})
	}
}

func TestResolvesPathsRelativeToFile(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "sources.yaml")
	if err := os.WriteFile(path, []byte(exampleFile), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := Read(path, defaults)
	if err != nil || len(all) != 2 || all[0].CAFile != filepath.Join(directory, "blue-ca.pem") {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestErrorsNameFileOnce(t *testing.T) {
	directory := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, path string
		lines      int
	}{
		{"missing", filepath.Join(directory, "none"), 1},
		{"a directory", directory, 1},
		{"endless", "/dev/zero", 1},
		{"four problems", write("bare", "sources: [{}]"), 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := Read(c.path, defaults)
			if err == nil || all != nil {
				t.Fatalf("read: %v, %v", all, err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != c.lines {
				t.Errorf("%d lines, want %d:\n%v", len(lines), c.lines, err)
			}
			for _, line := range lines {
				if !strings.HasPrefix(line, "SOURCES_FILE=") || strings.Count(line, c.path) != 1 {
					t.Errorf("want the file name once: %s", line)
				}
			}
		})
	}
}

func TestAllowsPorts(t *testing.T) {
	s := Source{Ports: []PortRange{{8080, 8080}, {30000, 32767}}}
	for port, want := range map[uint16]bool{0: false, 8079: false, 8080: true, 8081: false, 29999: false, 30000: true, 32767: true, 32768: false} {
		if s.AllowsPort(port) != want {
			t.Errorf("port %d: %v", port, !want)
		}
	}
	if (Source{}).AllowsPort(30000) {
		t.Error("want no port allowed without ports")
	}
}

func TestPortRangeRoundTrips(t *testing.T) {
	for _, text := range []string{"1", "8080", "30000-32767", "65535", "80-81"} {
		var r PortRange
		if err := r.UnmarshalText([]byte(text)); err != nil || r.String() != text {
			t.Errorf("%s: %v, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "0", "0-80", "80-", "-80", "81-80", "65536", "80-65536", "+80", "8_0", " 80", "80-81-82", "http"} {
		var r PortRange
		if err := r.UnmarshalText([]byte(text)); err == nil || r != (PortRange{}) {
			t.Errorf("%q accepted as %v", text, r)
		}
	}
}

// FuzzParse checks that accepted values can be used unchanged: as a label, in a name, for dialing, in an
// allowlist.
func FuzzParse(f *testing.F) {
	f.Add([]byte(exampleFile))
	f.Add([]byte(validSource + "  cidrs: [10.0.0.0/24]"))
	f.Add([]byte("sources: &a [*a]"))
	f.Add([]byte("sources: [{name: &n blue, address: *n}]\n---\n"))
	f.Add([]byte("sources: [{<<: {name: blue}, ? [cidrs] : 10.0.0.0/8, cidrs: !!str 10.0.0.0/8}]"))
	f.Add([]byte("sources: [{name: 1, address: \"a:1\", san: a, cidrs: [\"::/0\"], ports: [1-65535], namespaces: [null]}]"))
	f.Add([]byte("? {sources: []}\n: 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := Parse(text, "/etc", defaults)
		if err != nil {
			if all != nil || err.Error() == "" {
				t.Fatalf("%v with %v", all, err)
			}
			return
		}
		if len(all) == 0 {
			t.Fatal("accepted without a source")
		}
		names := map[string]bool{}
		for _, s := range all {
			san, errSAN := link.ParseSAN(string(s.SAN))
			_, _, errAddress := net.SplitHostPort(s.Address)
			if names[s.Name] || len(validation.IsDNS1123Label(s.Name)) > 0 || errAddress != nil || errSAN != nil || san != s.SAN ||
				s.CAFile == "" ||
				len(s.CIDRs) == 0 ||
				len(s.Ports) == 0 ||
				!slices.IsSorted(s.Namespaces) {
				t.Fatalf("accepted %+v", s)
			}
			names[s.Name] = true
			for _, c := range s.CIDRs {
				if !c.IsValid() || c.Prefix != c.Masked() || c.Addr().Is4In6() {
					t.Fatalf("accepted the CIDR %v", c)
				}
			}
			for _, r := range s.Ports {
				if r.First == 0 || r.First > r.Last {
					t.Fatalf("accepted the ports %v", r)
				}
			}
			for _, n := range s.Namespaces {
				if len(validation.IsDNS1123Label(n)) > 0 {
					t.Fatalf("accepted the namespace %q", n)
				}
			}
		}
		if !slices.IsSortedFunc(all, func(a, b Source) int { return strings.Compare(a.Name, b.Name) }) {
			t.Fatal("not sorted")
		}
	})
}

// TestParsesDocumentedExample parses the example that people copy.
func TestParsesDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../../../docs/use/several-clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	all, err := Parse([]byte(example), "/etc/slicefeed", defaults)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, f := range settings.List(new(Source)) {
		field := f.Flag
		if !strings.Contains(example, field+":") || !strings.Contains(string(page), "| `"+field+"` |") {
			t.Errorf("the example or the table does not have %s", field)
		}
	}
}
