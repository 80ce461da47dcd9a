package reconciler

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

var addresses = cmpopts.EquateComparable(netip.Addr{})

var noPorts = portRule{portsOf: func(string, []contract.Port) (verdict.Ports, string) { return verdict.Ports{}, "" }}

// choiceOf returns a choice of the addresses of these families.
func choiceOf(families ...discoveryv1.AddressType) *choice {
	return &choice{families: families, ports: noPorts}
}

func ipv4Choice() *choice { return choiceOf(discoveryv1.AddressTypeIPv4) }

func dualStack() []*verdict.Member {
	return []*verdict.Member{
		{Name: "a", State: verdict.Ready, Address: netip.MustParseAddr("10.0.1.1")},
		{Name: "b", State: verdict.Draining, Address: netip.MustParseAddr("10.0.1.2")},
		{Name: "c", State: verdict.Unknown, Address: netip.MustParseAddr("10.0.1.3")},
		{Name: "b", State: verdict.Draining, Address: netip.MustParseAddr("fd00::2")},
	}
}

// chosen returns the members that a choice selects.
func chosen(members []*verdict.Member, c *choice) []verdict.Member {
	var m chosenMembers
	m.choose("blue", members, c)
	return m.list
}

func reportOf(members ...*verdict.Member) *subscriber.Snapshot {
	return &subscriber.Snapshot{Members: members, TrustedMembers: members}
}

func TestMembersAreTheAddressesOfTheServicesFamilies(t *testing.T) {
	ipv4 := []verdict.Member{
		{Address: netip.MustParseAddr("10.0.1.1"), Name: "a", State: verdict.Ready},
		{Address: netip.MustParseAddr("10.0.1.2"), Name: "b", State: verdict.Draining},
		{Address: netip.MustParseAddr("10.0.1.3"), Name: "c", State: verdict.Unknown},
	}
	ipv6 := []verdict.Member{{Address: netip.MustParseAddr("fd00::2"), Name: "b", State: verdict.Draining}}
	var m chosenMembers
	set := dualStack()
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
			m.choose("blue", set, choiceOf(tt.families...))
			if diff := cmp.Diff(tt.want, m.list, addresses); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMembersAreThoseThatTheNodeSelectorMatches(t *testing.T) {
	set := dualStack()
	set[0].Labels = map[string]string{"pool": "blue"}
	selector, err := labels.Parse("pool=blue")
	if err != nil {
		t.Fatal(err)
	}
	some := ipv4Choice()
	some.selector = selector
	var m chosenMembers
	for _, tt := range []struct {
		of   *choice
		want int
	}{{ipv4Choice(), 3}, {some, 1}, {ipv4Choice(), 3}} {
		if m.choose("blue", set, tt.of); len(m.list) != tt.want {
			t.Errorf("%q selects %v", tt.of.key(), m.list)
		}
	}
}

func TestMapsZonesAndOmitsUnknownOnes(t *testing.T) {
	set := dualStack()
	set[1].Zone, set[0].Zone = "theirs", "another"
	of := ipv4Choice()
	of.zones = map[string]string{"theirs": "ours"}
	if got := chosen(set, of); got[0].Zone != "" || got[1].Zone != "ours" || set[1].Zone != "theirs" {
		t.Errorf("zones %q and %q", got[0].Zone, got[1].Zone)
	}
}

func TestHostnamesGoFromTheSourceToTheSlicesAndBack(t *testing.T) {
	set := dualStack()
	set[1].Hostname = "db-0"
	got := chosen(set, ipv4Choice())
	if got[0].Hostname != "" || got[1].Hostname != "db-0" {
		t.Errorf("hostnames %q and %q", got[0].Hostname, got[1].Hostname)
	}
	if current := written(t, []verdict.Endpoint{{Address: got[1].Address, Hostname: "db-0", Listed: true}}); current[0].Hostname != "db-0" {
		t.Errorf("listed %+v", current)
	}
}

// A target that was inactive meanwhile has the members of a client that was started again since.
func TestMembersOfAnotherClientAreReadAgain(t *testing.T) {
	var report chosenReport
	for _, text := range []string{"10.0.0.1", "10.0.0.2"} {
		address := netip.MustParseAddr(text)
		got := report.choose(reportOf(&verdict.Member{Name: "a", Address: address, State: verdict.Ready}), ipv4Choice())
		for name, members := range map[string][]verdict.Member{"current": got.Members, "trusted": got.Trusted} {
			if len(members) != 1 || members[0].Address != address {
				t.Errorf("%s members %v, want %s", name, members, address)
			}
		}
	}
}

// What was chosen last equals what is chosen again, whatever has changed.
func TestKeptMembersEqualThoseChosenAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var kept chosenMembers
		var set []*verdict.Member
		limit := rapid.SampledFrom([]int{0, 3}).Draw(t, "limit")
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "a new set") {
				set = nil
				for i := range rapid.IntRange(0, 6).Draw(t, "members") {
					m := &verdict.Member{Address: address(i), State: verdict.State(rapid.IntRange(0, 3).Draw(t, "state"))}
					if rapid.Bool().Draw(t, "serves") {
						m.Serves = []contract.Port{{Protocol: "TCP", Number: rapid.Uint16Range(1, 2).Draw(t, "port")}}
					}
					set = append(set, m)
				}
			}
			of := choiceOf(
				rapid.SampledFrom([]discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}).Draw(t, "family"),
			)
			of.ports, of.limit = drawPorts(t), limit
			before, then := kept.list, slices.Clone(kept.list)
			kept.choose("blue", set, of)
			if diff := cmp.Diff(chosen(set, of), kept.list, addresses); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(then, before, addresses); diff != "" {
				t.Fatalf("the previous list was altered: %s", diff)
			}
		}
	})
}

func TestReportAboveTheLimitIsNotUsed(t *testing.T) {
	of := ipv4Choice()
	of.limit = 3
	nodes := func(n int) (all []*verdict.Member) {
		for i := range n {
			all = append(all, &verdict.Member{Name: fmt.Sprintf("node-%05d", i), State: verdict.Ready, Address: address(i)})
		}
		return all
	}
	var report chosenReport
	for _, step := range []struct {
		nodes  int
		usable bool
	}{{3, true}, {4, false}, {1000, false}, {3, true}, {5, false}, {2, true}} {
		got := report.choose(reportOf(nodes(step.nodes)...), of)
		want := 0
		if step.usable {
			want = step.nodes
		}
		if (got.Unusable == "") != step.usable || len(got.Members) != want || len(got.Trusted) != want {
			t.Errorf("%d nodes: %q, %d members, %d trusted", step.nodes, got.Unusable, len(got.Members), len(got.Trusted))
		}
	}
	s := reportOf(nodes(3)...)
	s.TrustedMembers = nodes(4)
	if got := report.choose(s, of); got.Unusable != "" || len(got.Members) != 3 || got.Trusted != nil {
		t.Errorf("a trusted report above the limit counts: %+v", got)
	}
}

func TestDeselectedIsWhatTheLastSelectorWouldStillChoose(t *testing.T) {
	pool := func(value string) *choice {
		selector, err := labels.Parse("pool=" + value)
		if err != nil {
			t.Fatal(err)
		}
		of := ipv4Choice()
		of.selector = selector
		return of
	}
	inPools := func(pools ...string) *subscriber.Snapshot {
		var all []*verdict.Member
		for i, value := range pools {
			if value != "" {
				all = append(
					all,
					&verdict.Member{Name: fmt.Sprint("node-", i), Address: address(i), Labels: map[string]string{"pool": value}},
				)
			}
		}
		return reportOf(all...)
	}
	var report chosenReport
	for _, step := range []struct {
		name string
		from *subscriber.Snapshot
		by   *choice
		want []netip.Addr
	}{
		{"first", inPools("a", "a", "a", "b"), pool("a"), nil},
		{"the source relabels one", inPools("a", "a", "b", "b"), pool("a"), nil},
		{"another selector, while the source deletes one", inPools("", "a", "b", "b"), pool("b"), []netip.Addr{address(1)}},
		{"the same selector", inPools("", "a", "b", "b"), pool("b"), nil},
	} {
		if diff := cmp.Diff(step.want, report.choose(step.from, step.by).Deselected, addresses); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
}
