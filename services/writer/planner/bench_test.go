package planner

import (
	"fmt"
	"testing"
)

func sizes(b *testing.B, run func(b *testing.B, d Desired, c *cluster)) {
	for _, n := range []int{10, 100, 1000, 5000} {
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			d := target(n)
			run(b, d, settled(b, d))
		})
	}
}

// The slices are as they should be.
func BenchmarkMakeAtRest(b *testing.B) {
	sizes(b, func(b *testing.B, d Desired, c *cluster) {
		b.ReportAllocs()
		for b.Loop() {
			if !Make(d, c.slices).Empty() {
				b.Fatal("it writes")
			}
		}
	})
}

// One endpoint has other conditions than its slice says.
func BenchmarkMakeChange(b *testing.B) {
	sizes(b, func(b *testing.B, d Desired, c *cluster) {
		d.Endpoints[len(d.Endpoints)/2].Ready = false
		b.ReportAllocs()
		for b.Loop() {
			if Make(d, c.slices).Writes() != 1 {
				b.Fatal("it is not one write")
			}
		}
	})
}

// What the slices list is read back.
func BenchmarkHeld(b *testing.B) {
	sizes(b, func(b *testing.B, d Desired, c *cluster) {
		b.ReportAllocs()
		for b.Loop() {
			if len(Held(d, c.slices)) != len(d.Endpoints) {
				b.Fatal("something is missing")
			}
		}
	})
}
