package roster

import (
	"regexp"
	"strings"
	"testing"
)

func TestMatchesTheMachineOfANode(t *testing.T) {
	const le = "aabbccdd-eeff-4011-8222-333344445555"
	const be = "ddccbbaa-ffee-1140-8222-333344445555"
	l := listing(server(s1, "one"), server(s2, "two"), server(s3, "twin"), server(le, "twin"))
	l.Invalid = map[string]string{"BADBADBA-DBAD-4BAD-8BAD-BADBADBADBAD": "no name"}
	const bad = "badbadba-dbad-4bad-8bad-badbadbadbad"
	for _, tc := range []struct {
		name     string
		node     Node
		id       string
		reason   OmissionReason
		mentions []string
	}{
		{"by the short provider ID, in any case", Node{ProviderID: "IONOS://" + strings.ToUpper(s1)}, s1, 0, nil},
		{"by the long provider ID", Node{ProviderID: "ionos:///" + dc + "/" + s1}, s1, 0, nil},
		{"not by a long provider ID of another datacenter", Node{ProviderID: "ionos:///" + s3 + "/" + s1}, "", AmbiguousServer, []string{dc}},
		{"by system UUID", Node{SystemUUID: strings.ToUpper(s2)}, s2, 0, nil},
		{"by the byte-swapped system UUID", Node{SystemUUID: be}, le, 0, nil},
		{"by system UUID when the provider ID is another cloud's", Node{ProviderID: "aws:///eu/i-1", SystemUUID: s2}, s2, 0, nil},
		{"by a unique name", Node{Name: "one", SystemUUID: "nonsense"}, s1, 0, nil},
		{"not by a name that two servers have", Node{Name: "twin"}, "", AmbiguousServer, []string{"2 servers have its name"}},
		{"not at all", Node{Name: "x", ProviderID: "aws://?"}, "", NotFoundInIONOS, []string{"its name", "provider ID"}},
		{"by name when the provider ID is another program's", Node{Name: "one", ProviderID: "rke2://one"}, s1, 0, nil},
		{"not by name when the provider ID is one of ours, in an unknown form", Node{Name: "one", ProviderID: " IONOS:///" + s2}, "", NotFoundInIONOS, []string{"unknown form", "one has its name"}},
		{"but by system UUID", Node{Name: "one", ProviderID: "ionos:" + s2, SystemUUID: s2}, s2, 0, nil},
		{"provider ID and system UUID agree", Node{ProviderID: "ionos://" + s1, SystemUUID: s1}, s1, 0, nil},
		{"provider ID and byte-swapped system UUID agree", Node{ProviderID: "ionos://" + le, SystemUUID: be}, le, 0, nil},
		{"provider ID and system UUID name two servers", Node{ProviderID: "ionos://" + s1, SystemUUID: s2}, "", AmbiguousServer, []string{s2}},
		{"the provider ID names no server, the system UUID one", Node{ProviderID: "ionos://" + be, SystemUUID: s2}, "", AmbiguousServer, []string{s2}},
		{"a system UUID that no server has contradicts nothing", Node{ProviderID: "ionos://" + s1, SystemUUID: "ffffffff-ffff-4fff-8fff-ffffffffffff"}, s1, 0, nil},
		{"a name does not mend a provider ID that names no server", Node{Name: "one", ProviderID: "ionos://" + be}, "", NotFoundInIONOS, []string{be, "one has its name"}},
		{"a server whose data cannot be read", Node{ProviderID: "ionos://" + bad}, bad, InvalidRecord, []string{bad, "no name"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCloudIndex(l, t0)
			m := c.matchServer(&tc.node)
			if m.id != tc.id || m.omission.Reason != tc.reason {
				t.Errorf("got %q, reason %s; want %q, %s (%s)", m.id, m.omission.Reason, tc.id, tc.reason, m.omission.Message)
			}
			if (m.server == nil) == (tc.reason == 0) {
				t.Errorf("server %v with reason %s", m.server, m.omission.Reason)
			}
			for _, s := range tc.mentions {
				if !strings.Contains(m.omission.Message, s) {
					t.Errorf("message %q does not mention %q", m.omission.Message, s)
				}
			}
		})
	}
}

func TestASystemUUIDThatFitsTwoServersInItsTwoByteOrdersMatchesNone(t *testing.T) {
	const le, be = "aabbccdd-eeff-4011-8222-333344445555", "ddccbbaa-ffee-1140-8222-333344445555"
	c := newCloudIndex(listing(server(le, ""), server(be, "")), t0)
	if m := c.matchServer(&Node{SystemUUID: le}); m.omission.Reason != AmbiguousServer {
		t.Errorf("got %q %s, want %s", m.id, m.omission.Reason, AmbiguousServer)
	}
}

func FuzzProviderID(f *testing.F) {
	for _, s := range []string{
		"", "ionos://" + s1, "ionos:///" + dc + "/" + s1, "ionos:////" + s1, "ionos://" + s1 + "/", "aws:///x",
		" IONOS://" + strings.ToUpper(s1) + "\n", "ionos://" + s1 + "?x", "ionos://\u212aelvin", "ionos:///" + dc + "/" + s1 + "/" + s2,
	} {
		f.Add(s)
	}
	c := newCloudIndex(listing(server(s1, "one")), t0)
	f.Fuzz(func(t *testing.T, s string) {
		datacenter, id, _ := parseProviderID(s)
		ok := id != ""
		if ok != isUUID(id) || datacenter != "" && !isUUID(datacenter) || !ok && datacenter != "" {
			t.Errorf("%q gave %q %q %v", s, datacenter, id, ok)
		}
		if ok {
			form := "ionos://" + id
			if datacenter != "" {
				form = "ionos:///" + datacenter + "/" + id
			}
			if strings.ToLower(strings.TrimSpace(s)) != form {
				t.Errorf("%q was read as %q", s, form)
			}
		}
		m := c.matchServer(&Node{Name: "other", ProviderID: s})
		if (m.server != nil) != (ok && id == s1 && (datacenter == "" || datacenter == dc)) {
			t.Errorf("%q matched %+v", s, m)
		}
		if (m.omission.Reason == 0) != (m.server != nil) {
			t.Errorf("%q: server %v with reason %s", s, m.server, m.omission.Reason)
		}
	})
}

func FuzzSystemUUID(f *testing.F) {
	const le = "aabbccdd-eeff-4011-8222-333344445555"
	for _, s := range []string{"", le, strings.ToUpper(le), swapUUID(le), "{" + le + "}", strings.ReplaceAll(le, "-", ""), le + "\n", "Not Settable"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	c := newCloudIndex(listing(server(le, "")), t0)
	f.Fuzz(func(t *testing.T, s string) {
		if isUUID(s) != form.MatchString(s) {
			t.Errorf("%q: isUUID gives %t", s, isUUID(s))
		}
		lower := strings.ToLower(s)
		if isUUID(lower) && (swapUUID(swapUUID(lower)) != lower || !isUUID(swapUUID(lower))) {
			t.Errorf("%q swapped is %q, and twice %q", lower, swapUUID(lower), swapUUID(swapUUID(lower)))
		}
		means := lower == le || lower == swapUUID(le)
		if m := c.matchServer(&Node{SystemUUID: s}); (m.server != nil) != means {
			t.Errorf("%q matched %+v", s, m)
		}
	})
}
