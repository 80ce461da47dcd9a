package roster

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// fleet is a roster of n nodes, each with a machine of the cloud, told and at rest, and what the
// source and the cloud say of them.
func fleet(b *testing.B, n int) (r *Roster, nodes []Node, cloud Listing) {
	b.Helper()
	r = New(Config{Method: ByCloud, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	labels := map[string]string{"kubernetes.io/os": "linux", "pool": "blue"}
	for i := range n {
		id := fmt.Sprintf("%08x-0000-4000-8000-000000000000", i)
		c := node(fmt.Sprintf("standardnodes-%06d", i), id)
		c.SystemUUID, c.Labels = id, labels
		nodes = append(nodes, c)
		cloud.Servers = append(cloud.Servers, server(id, c.Name, fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
	}
	r.Apply(t0, Input{
		Source:       Update{Changed: nodes, LastContact: t0, Verified: 1},
		Verification: &VerificationResult{StartedAt: t0, Mode: FullVerification, Number: 1},
	})
	changes := r.Apply(t0, Input{Listing: &ListingResult{StartedAt: t0, Listing: cloud}})
	if got := len(changes); got != n {
		b.Fatalf("%d nodes are told, want %d", got, n)
	}
	return r, nodes, cloud
}

func sizes(b *testing.B, run func(b *testing.B, nodes int)) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint("nodes=", n), func(b *testing.B) { run(b, n) })
	}
}

// One Node is no longer Ready, then it is again, and so on.
func BenchmarkNodeChange(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		r, nodes, _ := fleet(b, n)
		one, now := nodes[n/2], t0
		b.ReportAllocs()
		for b.Loop() {
			one.State = Ready + NotReady - one.State
			now = now.Add(time.Second)
			changes := r.Apply(now, Input{Source: Update{Changed: []Node{one}, LastContact: now, Verified: 1}})
			if len(changes) != 1 {
				b.Fatal("it is no change")
			}
		}
	})
}

// A whole listing has other addresses for one machine.
func BenchmarkNICChange(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		r, _, cloud := fleet(b, n)
		nic, now := &cloud.Servers[n/2].NICs[0], t0
		both := [2][]netip.Addr{nic.Addresses, {netip.MustParseAddr("10.0.255.1")}}
		b.ReportAllocs()
		for i := 1; b.Loop(); i++ {
			nic.Addresses = both[i%2]
			now = now.Add(time.Minute)
			changes := r.Apply(now, Input{Listing: &ListingResult{StartedAt: now, Listing: cloud}})
			if len(changes) != 1 {
				b.Fatal("it is no change")
			}
		}
	})
}
