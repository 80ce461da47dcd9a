package roster

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestNodesAreEqualIfSubscribersCannotTellThemApart(t *testing.T) {
	base := func() Node {
		return Node{
			Name: "a", UID: "u", Addresses: addrs("10.0.0.1"), State: source.Ready, Since: t0, Zone: "z", Region: "r",
			Labels: map[string]string{"k": "v"}, ProviderID: "p", ServerID: "s",
		}
	}
	for what, alter := range map[string]func(*Node){
		"name": func(n *Node) { n.Name = "b" }, "UID": func(n *Node) { n.UID = "b" },
		"addresses": func(n *Node) { n.Addresses = addrs("10.0.0.2") }, "state": func(n *Node) { n.State = source.NotReady },
		"zone": func(n *Node) { n.Zone = "b" }, "region": func(n *Node) { n.Region = "b" },
		"hostname":    func(n *Node) { n.Hostname = "db-0" },
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
