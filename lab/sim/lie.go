package sim

import (
	"net/netip"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// lies are what an inventory with a valid certificate may say that is not so.
const lies = 7

// lie has the inventory speak of its own from now on, with a status that says all is well.
func (r *replica) lie(n int) {
	if !r.alive {
		return
	}
	if r.lying, r.tick = 1+n%lies, 0; r.script.Setup.Ports {
		r.lying = 1 + n%(lies+2)
	}
	r.tellf("%s lies (%d)", r.name, r.lying)
	r.utter()
}

// utter says the next lie.
func (r *replica) utter() {
	r.tick++
	var changes []roster.Change
	if r.tick == 1 { // what it said in truth and says no more is overwritten
		for _, e := range r.set.Snapshot().Upserts {
			changes = append(changes, roster.Change{Name: e.Key})
		}
	}
	for _, name := range r.names() {
		n := r.nodes.now[name]
		told := &roster.Node{
			Name: name, UID: n.uid, Addresses: []netip.Addr{n.address}, State: roster.Ready, Since: r.begun,
			Labels: map[string]string{poolLabel: n.pool}, Ports: portsOf(n.port).Ports,
		}
		if !r.says(told) {
			told = nil
		}
		changes = append(changes, roster.Change{Name: name, Node: told})
	}
	now := time.Now()
	well := roster.PartStatus{Sync: roster.Synced, Since: r.begun}
	r.set.Publish(roster.Status{
		Membership: well, Addresses: well, Observation: uint64(1_000_000 + r.tick), ObservedAt: now, Publishable: true,
	}, changes)
	r.pump()
	life := r.lying
	r.at(now.Add(5*time.Second), func() {
		if r.lying == life {
			r.utter()
		}
	})
}

// says alters what is told of a node; false: nothing is.
func (r *replica) says(n *roster.Node) bool {
	last := n.Name[len(n.Name)-1]
	switch r.lying {
	case 1: // nobody is there
		return false
	case 2:
		n.State = roster.NotReady
	case 3:
		n.State = roster.Draining
	case 4: // where no machine of ours is
		a := n.Addresses[0].As4()
		n.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, a[3]})}
		if last%2 == 0 {
			n.Addresses = []netip.Addr{clusterIP}
		}
	case 5: // within the fence, where nobody answers
		a := n.Addresses[0].As4()
		n.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{a[0], a[1], a[2], 255 - a[3]})}
	case 6: // one half and then the other
		return int(last)%2 == r.tick%2
	case 7: // all and then nobody
		return r.tick%2 == 0
	case 8, 9: // at ports at which nobody answers, or which are denied
		n.Ports = portsOf([]uint16{silentPort, deniedPort}[r.lying-8]).Ports
	}
	return true
}
