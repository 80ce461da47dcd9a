package inputs

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

var addresses = cmpopts.EquateComparable(netip.Addr{})

func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }

func dualStack() subscriber.Snapshot {
	return subscriber.Snapshot{Members: []*subscriber.Member{
		{Name: "b", State: verdict.Draining, Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("fd00::2")}},
		{Name: "a", State: verdict.Ready, Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.1")}},
		{Name: "c", State: verdict.Unknown, Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.3")}},
	}}
}

func TestMembersAreTheAddressesOfTheServicesFamilies(t *testing.T) {
	ipv4 := []verdict.Member{
		{Address: netip.MustParseAddr("10.0.1.1"), Name: "a", State: verdict.Ready},
		{Address: netip.MustParseAddr("10.0.1.2"), Name: "b", State: verdict.Draining},
		{Address: netip.MustParseAddr("10.0.1.3"), Name: "c", State: verdict.Unknown},
	}
	ipv6 := []verdict.Member{{Address: netip.MustParseAddr("fd00::2"), Name: "b", State: verdict.Draining}}
	var m members
	set := dualStack().Members
	for _, tt := range []struct {
		name     string
		families []discoveryv1.AddressType
		want     []verdict.Member
	}{
		{"IPv4", []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}, ipv4},
		{"IPv6, after IPv4 of the same members", []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}, ipv6},
		{"both, sorted", []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeIPv4}, append(ipv4[:3:3], ipv6...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, m.convert(set, Choice{Families: tt.families}), addresses); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMembersAreThoseThatTheNodeSelectorMatches(t *testing.T) {
	s := dualStack()
	s.Members[1].Labels = map[string]string{"pool": "blue"}
	selector, err := labels.Parse("pool=blue")
	if err != nil {
		t.Fatal(err)
	}
	all := Choice{Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}}
	some := all
	some.Selector = selector
	var m members
	for _, tt := range []struct {
		of   Choice
		want int
	}{{all, 3}, {some, 1}, {all, 3}} {
		if got := m.convert(s.Members, tt.of); len(got) != tt.want {
			t.Errorf("%q selects %v", tt.of.selectorText(), got)
		}
	}
}

func TestMapsZonesAndOmitsUnknownOnes(t *testing.T) {
	s := dualStack()
	s.Members[0].Zone, s.Members[1].Zone = "theirs", "another"
	var m members
	got := m.convert(
		s.Members,
		Choice{Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}, Zones: map[string]string{"theirs": "ours"}},
	)
	if got[0].Zone != "" || got[1].Zone != "ours" {
		t.Errorf("zones %q and %q", got[0].Zone, got[1].Zone)
	}
}

func TestHostnamesGoFromTheSourceToTheSlicesAndBack(t *testing.T) {
	s := dualStack()
	s.Members[0].Hostname = "db-0"
	var m members
	got := m.convert(s.Members, Choice{Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}})
	if got[0].Hostname != "" || got[1].Hostname != "db-0" {
		t.Errorf("hostnames %q and %q", got[0].Hostname, got[1].Hostname)
	}
	if current := written(t, []verdict.Endpoint{{Address: got[1].Address, Hostname: "db-0", Listed: true}}); current[0].Hostname != "db-0" {
		t.Errorf("listed %+v", current)
	}
}

// A target that was inactive meanwhile has the members of a client that was started again since.
func TestMembersOfAnotherClientAreReadAgain(t *testing.T) {
	ipv4 := Choice{Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}}
	of := func(address string) (s subscriber.Snapshot) {
		s.Members = []*subscriber.Member{{Name: "a", Addresses: []netip.Addr{netip.MustParseAddr(address)}, State: verdict.Ready}}
		s.TrustedMembers = s.Members
		return s
	}
	var source Source
	for _, address := range []string{"10.0.0.1", "10.0.0.2"} {
		got := source.Convert(of(address), ipv4, verdict.Allowlist{})
		for name, members := range map[string][]verdict.Member{"current": got.Members, "trusted": got.Trusted} {
			if len(members) != 1 || members[0].Address != netip.MustParseAddr(address) {
				t.Errorf("%s members %v, want %s", name, members, address)
			}
		}
	}
}

func TestListedEndpointsConvertToCurrentOnes(t *testing.T) {
	decided := []verdict.Endpoint{
		{
			Address:    netip.MustParseAddr("10.0.1.1"),
			Source:     "default",
			Listed:     true,
			Conditions: verdict.Conditions{Ready: true, Serving: true},
		},
		{Address: netip.MustParseAddr("10.0.1.2"), Source: "default", Verdict: verdict.Remove},
		{
			Address:    netip.MustParseAddr("10.0.1.3"),
			Source:     "default",
			Listed:     true,
			Conditions: verdict.Conditions{Serving: true, Terminating: true},
		},
	}
	want := []verdict.CurrentEndpoint{
		{Address: decided[0].Address, Source: "default", Conditions: decided[0].Conditions},
		{Address: decided[2].Address, Source: "default", Conditions: decided[2].Conditions},
	}
	if diff := cmp.Diff(want, written(t, decided), addresses); diff != "" {
		t.Error(diff)
	}
}

// written returns what the slices list after a decision.
func written(t *testing.T, decided []verdict.Endpoint) []verdict.CurrentEndpoint {
	desired := planner.Desired{
		Namespace: "web",
		Service:   "shop",
		ManagedBy: "ours",
		FirstName: "shop",
		Families:  []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
	}
	desired.Endpoints, desired.PortGroups = ListedEndpoints(decided, func(string, uint16) bool { return true })
	plan := planner.Compute(desired, nil)
	if len(plan.Create) != 1 {
		t.Fatalf("%d slices", len(plan.Create))
	}
	return CurrentEndpoints(desired, plan.Create, Ports{})
}

// This is the last gate before a write, whatever came before it.
func TestPortsThatAreNotAllowedAreNotWritten(t *testing.T) {
	allows := func(source string, port uint16) bool { return port >= 30000 && (source == "blue" || port != 30081) }
	decided := []verdict.Endpoint{
		{Source: "blue", Listed: true, Ports: verdict.Ports{Text: "http/TCP:30081,ssh/TCP:22"}},
		{Source: "blue", Listed: true, Ports: verdict.Ports{Text: "ssh/TCP:22"}},
		{Source: "green", Listed: true, Ports: verdict.Ports{Text: "http/TCP:30081"}},
		{Source: "green", Listed: true, Ports: verdict.Ports{Text: "http/TCP:30080:h2c"}},
	}
	for i := range decided {
		decided[i].Address = address(i)
	}
	listed, groups := ListedEndpoints(decided, allows)
	got := map[netip.Addr]string{}
	for _, e := range listed {
		for _, p := range groups[e.PortGroup] {
			got[e.Address] += fmt.Sprint(*p.Name, *p.Port, ptr.Deref(p.AppProtocol, ""))
		}
	}
	if diff := cmp.Diff(map[netip.Addr]string{address(0): "http30081", address(3): "http30080h2c"}, got, addresses); diff != "" {
		t.Error(diff)
	}
}

func TestReportAboveTheLimitIsNotUsed(t *testing.T) {
	ipv4 := Choice{Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}, Limit: 3}
	report := func(nodes int) (s subscriber.Snapshot) {
		for i := range nodes {
			s.Members = append(s.Members, &subscriber.Member{
				Name: fmt.Sprintf("node-%05d", i), State: verdict.Ready, Addresses: []netip.Addr{address(i)},
			})
		}
		s.TrustedMembers = s.Members
		return s
	}
	var source Source
	for _, step := range []struct {
		nodes  int
		usable bool
	}{{3, true}, {4, false}, {1000, false}, {3, true}, {5, false}, {2, true}} {
		s := report(step.nodes)
		got := source.Convert(s, ipv4, verdict.Allowlist{})
		want := 0
		if step.usable {
			want = step.nodes
		}
		if (got.Unusable == "") != step.usable || len(got.Members) != want || len(got.Trusted) != want {
			t.Errorf("%d nodes: %q, %d members, %d trusted", step.nodes, got.Unusable, len(got.Members), len(got.Trusted))
		}
	}
	s := report(3)
	s.TrustedMembers = report(4).Members
	if got := source.Convert(s, ipv4, verdict.Allowlist{}); got.Unusable != "" || len(got.Members) != 3 || got.Trusted != nil {
		t.Errorf("a trusted report above the limit counts: %+v", got)
	}
}

func TestDeselectedIsWhatTheLastSelectorWouldStillChoose(t *testing.T) {
	pool := func(value string) Choice {
		selector, err := labels.Parse("pool=" + value)
		if err != nil {
			t.Fatal(err)
		}
		return Choice{Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}, Selector: selector}
	}
	report := func(pools ...string) (s subscriber.Snapshot) {
		for i, value := range pools {
			if value != "" {
				s.Members = append(s.Members, &subscriber.Member{
					Name: fmt.Sprint("node-", i), Addresses: []netip.Addr{address(i)}, Labels: map[string]string{"pool": value},
				})
			}
		}
		s.TrustedMembers = s.Members
		return s
	}
	var source Source
	for _, step := range []struct {
		name   string
		report subscriber.Snapshot
		choice Choice
		want   []netip.Addr
	}{
		{"first", report("a", "a", "a", "b"), pool("a"), nil},
		{"the source relabels one", report("a", "a", "b", "b"), pool("a"), nil},
		{"another selector, while the source deletes one", report("", "a", "b", "b"), pool("b"), []netip.Addr{address(1)}},
		{"the same selector", report("", "a", "b", "b"), pool("b"), nil},
	} {
		got := source.Convert(step.report, step.choice, verdict.Allowlist{})
		if diff := cmp.Diff(step.want, got.Deselected, addresses); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
}
