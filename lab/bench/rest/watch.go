package rest

import (
	"context"
	"math"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// taken is what a half took while it was watched.
type taken struct {
	cpu      float64 // of one core, 1 is all of it
	noise    float64 // by how much the halves of that time differ from each other
	resident int64   // bytes at most
	mapped   int64   // of them, the program's own code
	peak     int64   // since its start
	heap     int64   // what Go's heap holds after the last collection, and what became garbage since
	asked    asked
}

// observe watches halves for so long. Nothing is asked of them meanwhile.
func observe(ctx context.Context, halves []*pair.Half, long time.Duration) ([]taken, error) {
	all := make([]taken, len(halves))
	before := make([]figures.Usage, len(halves))
	began := time.Now()
	for i, h := range halves {
		var err error
		if before[i], err = figures.UsageOf(h.PID()); err != nil {
			return nil, err
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	midway := make([]figures.Usage, len(halves))
	for n := time.Duration(1); n <= long/time.Second; n++ {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		for i, h := range halves {
			now, err := figures.UsageOf(h.PID())
			if err != nil {
				return nil, err
			}
			t := &all[i]
			t.resident, t.mapped, t.peak = max(t.resident, now.Resident), max(t.mapped, now.Mapped), now.Peak
			t.cpu = (now.CPU - before[i].CPU).Seconds() / time.Since(began).Seconds()
			if n == long/time.Second/2 {
				midway[i] = now
			}
			first, second := midway[i].CPU-before[i].CPU, now.CPU-midway[i].CPU
			t.noise = math.Abs((first - second).Seconds()) / (time.Since(began).Seconds() / 2)
		}
	}
	for i, h := range halves {
		heap, err := h.Metric(ctx, "go_memstats_heap_alloc_bytes")
		if err != nil {
			return nil, err
		}
		all[i].heap = int64(heap)
	}
	return all, nil
}
