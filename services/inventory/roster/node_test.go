package roster

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

func TestNodesAreEqualIfSubscribersCannotTellThemApart(t *testing.T) {
	base := func() Node {
		return Node{
			Name: "a", UID: "u", Addresses: addrs("10.0.0.1"), State: Ready, Since: t0, Zone: "z", Region: "r",
			Labels: map[string]string{"k": "v"}, ProviderID: "p", ServerID: "s",
		}
	}
	for what, alter := range map[string]func(*Node){
		"UID": func(n *Node) { n.UID = "b" }, "since": func(n *Node) { n.Since = t0.Add(time.Hour) },
		"addresses": func(n *Node) { n.Addresses = addrs("10.0.0.2") }, "state": func(n *Node) { n.State = NotReady },
		"zone": func(n *Node) { n.Zone = "b" }, "region": func(n *Node) { n.Region = "b" },
		"hostname":    func(n *Node) { n.Hostname = "db-0" },
		"ports":       func(n *Node) { n.Ports = []contract.Port{{Protocol: "TCP", Number: 80}} },
		"labels":      func(n *Node) { n.Labels = map[string]string{"k": "w"} },
		"provider ID": func(n *Node) { n.ProviderID = "b" }, "server": func(n *Node) { n.ServerID = "b" },
	} {
		n := base()
		if alter(&n); n.looksLike(new(base())) {
			t.Errorf("nodes of different %s are equal", what)
		}
	}
	n := base()
	n.SystemUUID, n.InternalIPs, n.StateReason, n.Omission = "b", addrs("10.0.0.2"), "why", Omission{NotFoundInIONOS, "gone"}
	if !n.looksLike(new(base())) {
		t.Error("what subscribers do not get is a difference")
	}
}

func TestPublishesOnlyExportedLabels(t *testing.T) {
	r := New(Config{Method: ByNodeAddress, CIDRs: cidr, ExportLabels: []string{"pool", "rack", "zone"}})
	report := func(labels map[string]string) []Change {
		c := Node{Name: "a", State: Ready, InternalIPs: addrs("10.0.0.1"), Labels: labels}
		return r.Apply(t0, Input{
			Source:       Update{Changed: []Node{c}, LastContact: t0, Verified: 1},
			Verification: &VerificationResult{StartedAt: t0, Mode: FullVerification, Number: 1},
		})
	}
	report(map[string]string{"pool": "blue", "rack": "1", "secret": "x"})
	if got, want := r.Nodes()[0].Labels, map[string]string{"pool": "blue", "rack": "1"}; !maps.Equal(got, want) {
		t.Errorf("labels %v, want %v", got, want)
	}
	if changes := report(map[string]string{"pool": "blue", "rack": "1", "secret": "y"}); len(changes) > 0 {
		t.Errorf("a label that is not exported changes the node: %v", changes)
	}
	if changes := report(map[string]string{"pool": "red", "rack": "1", "secret": "y"}); len(changes) != 1 {
		t.Errorf("a label that is exported causes %d changes", len(changes))
	}
}

func TestMembersAreFoundByTheirNameAndByEachOfTheirAddresses(t *testing.T) {
	r := New(Config{Method: ByCloud, CIDRs: cidr})
	a, b := node("a", s1), node("b", s2)
	a.InternalIPs = addrs("192.0.2.1")
	cloud := listing(server(s1, "a", "10.0.0.1", "10.0.0.9"), server(s2, "b"))
	for i := range 60 {
		cloud.Servers[1].NICs[0].Addresses = append(cloud.Servers[1].NICs[0].Addresses, netip.AddrFrom4([4]byte{172, 16, 0, byte(i)}))
	}
	r.Apply(t0, Input{Source: Update{Changed: []Node{a, b}, LastContact: t0}, Listing: &ListingResult{StartedAt: t0, Listing: cloud}})
	for want, filters := range map[string][]Filter{
		"a": {{Name: "a"}, {Address: addr("10.0.0.1")}, {Address: addr("10.0.0.9")}, {Address: addr("192.0.2.1"), Details: true}},
		"b": {{Name: "b", Details: true}, {Address: addr("172.16.0.1")}},
		"":  {{Name: "c"}, {Address: addr("10.0.0.3")}, {Name: "b", Address: addr("10.0.0.1")}},
	} {
		for _, f := range filters {
			names := ""
			for _, m := range r.Members(f) {
				names += m.Name
				if len(m.Candidates) > maxDescribed {
					t.Errorf("%d addresses are described", len(m.Candidates))
				}
			}
			if names != want {
				t.Errorf("%+v selects %q, want %q", f, names, want)
			}
		}
	}
	if all := r.Members(Filter{}); len(all) != 2 || all[0].Candidates != nil {
		t.Errorf("without a filter: %+v", all)
	}
}
