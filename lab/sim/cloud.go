package sim

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// machine is a server of the cloud, as it is.
type machine struct {
	id, name string
	address  netip.Addr
}

// cloud is what a secured cluster's machines run in.
type cloud struct {
	c        *cluster
	rand     *rand.Rand
	machines *journal[machine]

	// Faults in force.
	failing, hanging, odd, hiding, sharing int
	retryAfter, lag                        time.Duration
	victim                                 int
}

func newCloud(c *cluster) *cloud {
	return &cloud{c: c, rand: c.chance("cloud " + c.name), machines: newJournal[machine]()}
}

// boot starts the machine of a Node, and what it serves.
func (d *cloud) boot(n node) {
	d.machines.put(n.server, machine{n.server, n.name, n.address})
	d.c.host(n.address).powered = true
	d.c.alive(n.address)
}

// has says whether a Node's machine is still there; the Node may linger.
func (d *cloud) has(node string) bool {
	_, ok := d.machines.now[d.c.nodes.now[node].server]
	return ok
}

// address is that of a Node's machine, whatever its Node says meanwhile.
func (d *cloud) address(node string) netip.Addr {
	n := d.c.nodes.now[node]
	if m, ok := d.machines.now[n.server]; ok {
		return m.address
	}
	return n.address
}

// delete takes a machine away; what it serves may answer on, as one that was only forgotten.
func (d *cloud) delete(id string, answers bool) {
	m, ok := d.machines.now[id]
	if !ok {
		return
	}
	d.machines.remove(id)
	for _, other := range d.machines.now {
		answers = answers || other.address == m.address
	}
	if !answers {
		d.c.host(m.address).powered = false
		d.c.alive(m.address)
	}
}

// move gives a machine another address.
func (d *cloud) move(id string, to netip.Addr) {
	m, ok := d.machines.now[id]
	if !ok {
		return
	}
	from := m.address
	m.address = to
	d.machines.put(id, m)
	used := false
	for _, other := range d.machines.now {
		used = used || other.address == from
	}
	d.c.host(from).powered = used
	d.c.host(to).powered = true
	d.c.alive(from)
	d.c.alive(to)
}

// list answers a whole listing, or with an error.
func (d *cloud) list(at func(time.Time, func()) *event, answer func(roster.Listing, error, time.Duration)) {
	now := time.Now()
	took := 50*time.Millisecond + time.Duration(d.rand.IntN(400))*time.Millisecond
	if d.hanging > 0 {
		at(now.Add(30*time.Second), func() { answer(roster.Listing{}, errors.New("no answer in 30s"), 0) })
		return
	}
	at(now.Add(took), func() {
		switch {
		case d.hanging > 0:
			at(now.Add(30*time.Second), func() { answer(roster.Listing{}, errors.New("no answer in 30s"), 0) })
		case d.retryAfter > 0:
			answer(roster.Listing{}, errors.New("429 Too Many Requests"), d.retryAfter)
		case d.failing > 0:
			answer(roster.Listing{}, errors.New("the answer cannot be used"), 0)
		default:
			answer(d.listing(), nil, 0)
		}
	})
}

// listing is what the cloud says now, be it wrong.
func (d *cloud) listing() roster.Listing {
	all, _ := d.machines.asOf(time.Now().Add(-d.lag))
	l := roster.Listing{Invalid: map[string]string{}}
	ids := slices.Sorted(maps.Keys(all))
	for i, id := range ids {
		m := all[id]
		nic := roster.NIC{ID: "nic-" + id, LAN: "3", Addresses: []netip.Addr{m.address}}
		if i == d.victim%len(ids) {
			if d.hiding > 0 {
				nic.Addresses = nil
			}
			if d.odd > 0 {
				l.Invalid[id] = "ips[0] is no address"
				nic.Addresses = nil
			}
		} else if d.sharing > 0 {
			nic.Addresses = append(nic.Addresses, all[ids[d.victim%len(ids)]].address)
		}
		s := roster.Server{ID: id, Datacenter: "0dc00000-0000-4000-8000-000000000000", Name: m.name}
		if len(nic.Addresses) > 0 {
			s.NICs = []roster.NIC{nic}
		}
		l.Servers = append(l.Servers, s)
	}
	return l
}
