package planner

import (
	"fmt"
	"testing"
)

func forEachSize(b *testing.B, run func(b *testing.B, d Desired, c *fakeCluster)) {
	for _, n := range []int{10, 100, 1000, 5000} {
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			d := testTarget(n)
			run(b, d, appliedCluster(b, d))
		})
	}
}

// BenchmarkComputeUnchanged computes a plan without writes.
func BenchmarkComputeUnchanged(b *testing.B) {
	forEachSize(b, func(b *testing.B, d Desired, c *fakeCluster) {
		b.ReportAllocs()
		for b.Loop() {
			if !Compute(d, c.slices).Empty() {
				b.Fatal("want an empty plan")
			}
		}
	})
}

// BenchmarkComputeChange computes the plan after one endpoint has changed.
func BenchmarkComputeChange(b *testing.B) {
	forEachSize(b, func(b *testing.B, d Desired, c *fakeCluster) {
		d.Endpoints[len(d.Endpoints)/2].Ready = false
		b.ReportAllocs()
		for b.Loop() {
			if Compute(d, c.slices).Writes() != 1 {
				b.Fatal("want one write")
			}
		}
	})
}

// BenchmarkCurrentEndpoints reads all endpoints from the slices.
func BenchmarkCurrentEndpoints(b *testing.B) {
	forEachSize(b, func(b *testing.B, d Desired, c *fakeCluster) {
		b.ReportAllocs()
		for b.Loop() {
			if len(CurrentEndpoints(d, c.slices)) != len(d.Endpoints) {
				b.Fatal("endpoints missing")
			}
		}
	})
}
