package roster

import (
	"maps"
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
		"name": func(n *Node) { n.Name = "b" }, "UID": func(n *Node) { n.UID = "b" },
		"addresses": func(n *Node) { n.Addresses = addrs("10.0.0.2") }, "state": func(n *Node) { n.State = NotReady },
		"zone": func(n *Node) { n.Zone = "b" }, "region": func(n *Node) { n.Region = "b" },
		"hostname":    func(n *Node) { n.Hostname = "db-0" },
		"ports":       func(n *Node) { n.Ports = []contract.Port{{Protocol: "TCP", Number: 80}} },
		"labels":      func(n *Node) { n.Labels = map[string]string{"k": "w"} },
		"provider ID": func(n *Node) { n.ProviderID = "b" }, "server": func(n *Node) { n.ServerID = "b" },
	} {
		n := base()
		if alter(&n); n.Equal(base()) {
			t.Errorf("nodes of different %s are equal", what)
		}
	}
	n := base()
	if n.Since = t0.Add(time.Hour); !n.Equal(base()) {
		t.Error("how long a node is in its state is no difference")
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
