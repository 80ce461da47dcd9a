package probe

import (
	"fmt"
	"testing"
)

// BenchmarkSchedule starts and finishes one probe among many that are spread over the interval.
func BenchmarkSchedule(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint("targets=", n), func(b *testing.B) {
			s, now := NewSchedule(1000), startTime
			turn := func(random float64) {
				if wake, _ := s.Wake(); wake.After(now) {
					now = wake
				}
				a, due := s.Start(now, random)
				if !due {
					b.Fatal("nothing is due")
				}
				s.Finish(a, Pass, "", now)
			}
			var keys []Key
			for i := range n {
				keys = append(keys, testKey(i))
			}
			s.SetTarget("web/a", requestsFor("blue", keys...), now)
			for i := range 2 * n {
				turn(float64(i%997) / 997)
			}
			b.ReportAllocs()
			for b.Loop() {
				turn(0.5)
			}
		})
	}
}
