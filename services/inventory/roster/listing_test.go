package roster

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestANodeWhoseNICAppearsMinutesLateHasItsAddressWithTheListingThatShowsIt(t *testing.T) {
	w := ready(t, Config{})
	w.pass(20 * time.Second)
	w.up(node("b", s2))
	born := w.now
	late := listing(server(s1, "a", "10.0.0.11"), source.Server{ID: s2, Datacenter: dc, Name: "b"})
	for w.now.Sub(born) < 4*time.Minute {
		w.serve(late, 1)
		w.sees("a 10.0.0.11")
		if s := w.Status(w.now); s.Addresses.Sync != source.Synced || s.Membership.Sync != source.Synced {
			t.Fatalf("a NIC that is late degrades: %+v", s)
		}
	}
	if o := w.omits("b"); o.Reason != source.NoAddressOnLAN {
		t.Errorf("got %+v", o)
	}
	attached := w.now
	for len(w.Nodes()) < 2 && w.now.Sub(attached) < time.Hour {
		w.serve(listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.12")), 1)
	}
	w.sees("a 10.0.0.11", "b 10.0.0.12")
	if d := w.now.Sub(attached); d > time.Minute {
		t.Errorf("%s after the NIC", d)
	}
}

func TestAListingThatOnlyLooksDifferentChangesNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		l    source.Listing
	}{
		{"ips in another order", listing(server(s1, "a", "10.0.0.11", "192.168.0.1", "fd00::11"))},
		{"the same address twice, and in its IPv4-mapped form", listing(server(s1, "a", "10.0.0.11", "fd00::11", "::ffff:10.0.0.11"))},
		{"the addresses on two NICs of the LAN", listing(source.Server{ID: s1, Datacenter: dc, NICs: []source.NIC{
			{ID: "1", LAN: "3", Addresses: addrs("10.0.0.11")}, {ID: "2", LAN: "3", Addresses: addrs("fd00::11")},
		}})},
		{"servers that are no nodes", listing(server(s3, "", "10.0.0.33"), server(s1, "a", "fd00::11", "10.0.0.11"))},
		{"the server twice", listing(server(s1, "a", "10.0.0.11", "fd00::11"), server(s1, "a", "10.0.0.11", "fd00::11"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.up(node("a", s1))
			w.observed(listing(server(s1, "a", "fd00::11", "192.168.0.1", "10.0.0.11")))
			w.take()
			w.list(tc.l)
			w.sees("a 10.0.0.11 fd00::11")
			if changes := w.take(); len(changes) != 0 {
				t.Errorf("told %+v", changes)
			}
		})
	}
}

func TestANewNodeIsGivenNoAddressThatItSharesWithAnother(t *testing.T) {
	for _, tc := range []struct {
		name   string
		l      source.Listing
		want   []string
		reason source.OmissionReason // for b; 0: it is listed
	}{
		{
			"a failover address, declared",
			source.Listing{Servers: []source.Server{server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.99")}, Failover: addrs("10.0.0.99")},
			[]string{"a 10.0.0.11"},
			source.SharedAddress,
		},
		{
			"a failover address, borne by all and not declared",
			listing(server(s1, "a", "10.0.0.99", "10.0.0.11"), server(s2, "b", "10.0.0.99")),
			[]string{"a 10.0.0.11"},
			source.SharedAddress,
		},
		{
			"a failover address before its own",
			listing(server(s1, "a", "10.0.0.99", "10.0.0.11"), server(s2, "b", "10.0.0.99", "10.0.0.12")),
			[]string{"a 10.0.0.11", "b 10.0.0.12"},
			0,
		},
		{
			"the address of a server that is no node",
			listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.33"), server(s3, "", "10.0.0.33")),
			[]string{"a 10.0.0.11"},
			source.SharedAddress,
		},
		{
			"a shared address of one family only",
			listing(server(s1, "a", "10.0.0.11", "fd00::99"), server(s2, "b", "10.0.0.12", "fd00::99")),
			[]string{"a 10.0.0.11", "b 10.0.0.12"},
			0,
		},
		{
			"addresses of its own, one of them told twice",
			listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.12", "fd00::12", "::ffff:10.0.0.12")),
			[]string{"a 10.0.0.11", "b 10.0.0.12 fd00::12"},
			0,
		},
		{
			"an address of its own, and the server is told twice",
			listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.12"), server(s2, "b", "10.0.0.12")),
			[]string{"a 10.0.0.11", "b 10.0.0.12"},
			0,
		},
		{
			"an address of its own, of IPv6 only",
			listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "fd00::12")),
			[]string{"a 10.0.0.11", "b fd00::12"},
			0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ready(t, Config{})
			w.up(node("b", s2))
			w.list(tc.l)
			w.sees(tc.want...)
			for _, o := range w.Omitted() {
				if o.Name == "b" && o.Reason != tc.reason {
					t.Errorf("b is left out with %s: %s", o.Reason, o.Advice)
				}
			}
		})
	}
}

func TestNodesOfSeveralDatacentersAreResolvedByOneListing(t *testing.T) {
	const other = "0dc00000-0000-4000-8000-000000000001"
	w := newWorld(t, Config{})
	far := node("b", s2)
	far.ProviderID = "ionos:///" + other + "/" + s2
	away := server(s2, "a", "10.0.0.12") // of the other's name: names matter only without IDs
	away.Datacenter, away.NICs[0].LAN = other, "7"
	w.up(node("a", s1), far)
	w.observed(listing(server(s1, "a", "10.0.0.11"), away))
	w.sees("a 10.0.0.11", "b 10.0.0.12")
}
