package roster

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/resolve"
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

func TestANodesTimeInItsStateBeginsWithTheState(t *testing.T) {
	w := newPublishedRecord(t, Config{})
	since := func() time.Time { return w.Nodes()[0].Since }
	state := func(s source.NodeState, label string) source.Candidate {
		c := record("a", "10.0.0.1")
		c.State, c.Labels = s, map[string]string{"k": label}
		return c
	}
	apply := func(states ...source.Candidate) {
		w.pass(time.Second)
		w.applySource(w.now, source.Update{Changed: states})
	}
	began := since()
	if apply(state(source.Ready, "x")); !since().Equal(began) {
		t.Error("a change of a label restarted the time in the state")
	}
	w.take()
	apply(state(source.NotReady, "x"), state(source.Ready, "x"))
	if changes := w.take(); len(changes) != 1 || !changes[0].Node.Since.Equal(w.now) {
		t.Errorf("not ready and back again: %+v, want one change, since %s", changes, w.now)
	}
	apply(state(source.Ready, "y"), state(source.Ready, "x"))
	if changes := w.take(); len(changes) != 0 {
		t.Errorf("a label altered and back again: %+v", changes)
	}
}

func TestNodeIsPublishedWithItsServer(t *testing.T) {
	w := ready(t, Config{})
	if got := w.Nodes()[0].ServerID; got != s1 {
		t.Errorf("server %q", got)
	}
}

// One family that is somebody else's must not cost a node the other.
func TestANodeThatWaitsForOneFamilyIsListedWithTheOther(t *testing.T) {
	w := newWorld(t, Config{Method: resolve.ByNodeAddress})
	w.up(source.Candidate{Name: "a", UID: "a", State: source.Ready, InternalIPs: addrs("10.0.0.11", "fd00::11")})
	w.up(source.Candidate{Name: "b", UID: "b", State: source.Ready, InternalIPs: addrs("10.0.0.12", "fd00::11")})
	w.sees("a 10.0.0.11 fd00::11", "b 10.0.0.12")
	w.remove(w.now, "a")
	w.sees("b 10.0.0.12 fd00::11")
}

// A server whose data cannot be read degrades the addresses for as long as it concerns a node.
func TestAddressesAreDegradedWhileANodesServerCannotBeRead(t *testing.T) {
	odd := one
	odd.Invalid = map[string]string{s2: "its NICs are not told"}
	both := listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.12"))
	for name, then := range map[string]func(*world){
		"until it can":           func(w *world) { w.list(both) },
		"until the node is gone": func(w *world) { w.remove(w.now, "b") },
	} {
		w := ready(t, Config{})
		w.up(node("b", s2))
		if w.list(odd); w.Status(w.now).Addresses.Sync != source.Degraded {
			t.Errorf("%s: %+v, want it degraded first", name, w.Status(w.now).Addresses)
		}
		if then(w); w.Status(w.now).Addresses.Sync != source.Synced {
			t.Errorf("%s: %+v", name, w.Status(w.now).Addresses)
		}
	}
	w := ready(t, Config{})
	w.up(node("c", s3))
	if w.list(one); w.Status(w.now).Addresses.Sync != source.Synced {
		t.Errorf("a node without a server: %+v", w.Status(w.now).Addresses)
	}
}
