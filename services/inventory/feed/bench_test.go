package feed

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// BenchmarkChange changes one node of the roster and updates one reader that was up to date. Compared to
// the delta set, the feed adds the fingerprint.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint("nodes=", n), func(b *testing.B) {
			s := NewSet("epoch")
			nodes := make([]*roster.Node, n)
			for i := range nodes {
				nodes[i] = newNode(
					fmt.Sprintf("standardnodes-%06d", i),
					source.Ready,
					withLabels("pool", "blue", "kubernetes.io/os", "linux"),
				)
				nodes[i].Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
			}
			s.Apply(upserts(nodes...))
			at := publish(s).Since(nil).At
			other := *nodes[n/2]
			other.State = source.NotReady
			both := [2][]roster.Change{upserts(nodes[n/2]), upserts(&other)}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				s.Apply(both[i%2])
				u := s.Since(&at)
				if len(u.Upserts) != 1 {
					b.Fatal("not one upsert")
				}
				at = u.At
			}
		})
	}
}
