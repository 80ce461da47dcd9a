package link

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const sampleServices = `
clients:
- {san: ` + writerURI + `, role: subscriber, services: [shop/web, pay/*, shop/web]}
- {san: ` + operatorDNS + `, role: operator}
`

func TestReportsAllClientListProblems(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"an empty file", "", []string{"no clients"}},
		{"an empty list", "clients: []", []string{"no clients"}},
		{"no YAML", "\tclients", []string{"yaml"}},
		{"two documents", "clients: [{san: a.example, role: operator}]\n---\nclients: []", []string{"more than one"}},
		{"a misspelt key does not drop a restriction", "clients: [{san: a.example, role: operator, servces: [shop/web]}]", []string{"servces"}},
		{"a wildcard in a URI", "clients: [{san: 'spiffe://example.org/*', role: operator}]", []string{"without a wildcard"}},
		{"a wildcard in a URI's host", "clients: [{san: 'spiffe://*.example.org/writer', role: operator}]", []string{"without a wildcard"}},
		{"services that are none", "clients: [{san: a.example, role: operator, services: [shop/web, web, a/b/c, Shop/web, 'sh*/web', /]}]", []string{
			`client 1 ("a.example"): line 1: services: "web": want namespace/name`, `"a/b/c": want`, `"Shop/web": want`, `"sh*/web": want`, `"/": want`,
		}},
		{"several problems", `
clients:
- {san: "*.example", role: subscriber}
- {san: a.example, role: admin, colour: red}
- {san: a.example, role: operator, services: [a/b/c]}
- {role: operator}
- {san: "spiffe://example.org/x?y", role: subscriber}
`, []string{
			`client 1 ("*.example"): line 3: san`, `client 2 ("a.example"): line 4: role: "admin": want one of subscriber, operator`,
			`line 4: unknown field "colour"; want one of san, role, services`, `client 3 ("a.example"): duplicate san, as of 2`,
			`line 5: services: "a/b/c": want namespace/name`, `client 4 (""): san is not set`, `client 5 ("spiffe://example.org/x?y"): line 7: san`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			grants, err := parseClients([]byte(c.text))
			if err == nil {
				t.Fatalf("accepted: %v", grants)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not contain %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestParsesClientList(t *testing.T) {
	want := []Grant{
		{SAN: writerURI, Role: RoleSubscriber, Services: []string{"pay/*", "shop/web"}},
		{SAN: operatorDNS, Role: RoleOperator},
	}
	if diff := cmp.Diff(want, mustParseClients(t, sampleServices), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// mustParseClients returns the grants of a valid list.
func mustParseClients(t *testing.T, text string) []Grant {
	t.Helper()
	grants, err := parseClients([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return grants
}

func TestGrantsAllowServicesByName(t *testing.T) {
	grants := mustParseClients(t, `
clients:
- {san: a.example, role: subscriber, services: [shop/web, pay/*, "*/dns"]}
- {san: b.example, role: operator}
- {san: c.example, role: subscriber, services: ["*/*"]}
`)
	for service, want := range map[string][3]bool{
		"shop/web": {true, false, true}, "shop/api": {false, false, true}, "pay/any": {true, false, true},
		"kube-system/dns": {true, false, true}, "shop/*": {false, false, true}, "": {false, false, true},
	} {
		for i, g := range grants {
			if _, got := g.FindService(service); got != want[i] {
				t.Errorf("%s may see %q: %v, want %v", g.SAN, service, got, want[i])
			}
		}
	}
}

func FuzzParseClients(f *testing.F) {
	f.Add([]byte(sampleServices))
	f.Add([]byte("clients: [{san: a.example, role: operator, services: ['a/*', x/y]}]"))
	f.Add([]byte("clients: &a [*a]"))
	f.Add([]byte("clients: [{san: spiffe://x/y, role: subscriber}]\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		grants, err := parseClients(text)
		if err != nil {
			return
		}
		if len(grants) == 0 {
			t.Fatal("an empty list was accepted")
		}
		seen := map[SAN]bool{}
		for _, g := range grants {
			again, err := ParseSAN(string(g.SAN))
			if err != nil || again != g.SAN || seen[g.SAN] ||
				(g.Role != RoleSubscriber && g.Role != RoleOperator) {
				t.Fatalf("accepted %+v", g)
			}
			seen[g.SAN] = true
		}
	})
}
