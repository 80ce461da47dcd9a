package targets

import (
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// BenchmarkResolve resolves a Service with all of its slices.
func BenchmarkResolve(b *testing.B) {
	for _, n := range []int{1, 50} {
		b.Run(fmt.Sprint("slices=", n), func(b *testing.B) {
			cfg := newConfig()
			found := Input{Key: shop, Service: newService()}
			for i := range n {
				found.Slices = append(found.Slices, ownedSlice(fmt.Sprint("shop-", i), "svc-1"))
			}
			// A foreign slice.
			found.Slices = append(found.Slices, &discoveryv1.EndpointSlice{ObjectMeta: newSlice("theirs", "another").ObjectMeta})
			b.ReportAllocs()
			for b.Loop() {
				if resolution, _ := Resolve(cfg, found); resolution.Rejection != nil || len(resolution.ForeignSlices) != 1 {
					b.Fatalf("%+v", resolution)
				}
			}
		})
	}
}
