// Package figures is what reports of measurements have in common: percentiles, the machine, and what a process takes. It
// does not interpolate.
package figures

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Percentile is the nearest-rank percentile of at least one sample: a value that was measured.
func Percentile(samples []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(samples))
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// Milliseconds is a duration as reports have it.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Machine describes what a measurement was made on.
func Machine() string {
	return fmt.Sprintf("%d cores, %s %s/%s", runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
