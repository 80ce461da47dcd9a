package probes

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/prober"
)

// A failure counts only if the run of another endpoint's passes overlaps with it. When half of the
// backends of a Service die together, that takes no longer than the failure of one of them.
func TestHalfOfTheBackendsDieTogether(t *testing.T) {
	t.Parallel()
	const times = 6
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, clock := newBench(t), newClock(t)
	type row struct {
		name   string
		mode   backend.Mode
		all    int
		within time.Duration
		took   []time.Duration
	}
	rows := []*row{
		{name: "1 of 2 refuses", mode: backend.Refuse, all: 2, within: Refuses},
		{name: "25 of 50 refuse", mode: backend.Refuse, all: 50, within: Refuses},
		{name: "1 of 2 drops every packet", mode: backend.Silent, all: 2, within: Silent},
		{name: "25 of 50 drop every packet", mode: backend.Silent, all: 50, within: Silent},
	}
	var services sync.WaitGroup
	for n, r := range rows {
		addresses := make([]netip.Addr, r.all)
		for i := range addresses {
			addresses[i] = netip.AddrFrom4([4]byte{10, 2, byte(n), byte(1 + i)})
		}
		service, err := b.AddService(fmt.Sprint("web/", n), Ways[0], addresses...)
		if err != nil {
			t.Fatal(err)
		}
		services.Go(func() {
			for range times {
				took, err := dieTogether(ctx, service, r.mode)
				if err != nil {
					clock.complainf("%s: %v", r.name, err)
					return
				}
				r.took = append(r.took, took...)
			}
		})
	}
	services.Wait()
	more := clock.measured()
	for _, r := range rows {
		if len(r.took) == 0 {
			continue
		}
		p99 := figures.Percentile(r.took, 99)
		t.Logf(
			"%-28s bound %.1f s, p50 %.2f s, p99 %.2f s",
			r.name,
			r.within.Seconds(),
			figures.Percentile(r.took, 50).Seconds(),
			p99.Seconds(),
		)
		if limit := time.Duration(slack*float64(r.within)) + more; p99 > limit {
			clock.complainf("%s: p99 is %v, more than %v", r.name, p99, limit)
		}
	}
	clock.judge()
}

// dieTogether kills half of a Service, brings it back, and returns after how long each failure counted.
func dieTogether(ctx context.Context, service []*Subject, mode backend.Mode) (took []time.Duration, err error) {
	for _, s := range service {
		if _, err := s.Until(ctx, prober.Passing); err != nil {
			return nil, err
		}
	}
	AnyTime(ctx, 0, probe.DefaultInterval)
	dead := service[len(service)/2:]
	began := time.Now()
	for _, s := range dead {
		if err := s.Set(mode); err != nil {
			return nil, err
		}
	}
	for left := slices.Clone(dead); len(left) > 0; {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d failures do not count: %w", len(left), ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
		left = slices.DeleteFunc(left, func(s *Subject) bool {
			counts := slices.ContainsFunc(service, func(other *Subject) bool { return corroborates(other, s) })
			if counts {
				took = append(took, time.Since(began))
			}
			return counts
		})
	}
	for _, s := range dead {
		if err := s.Set(backend.Serve); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// corroborates reports whether one backend fails and the run of another one's passes overlaps with its failures.
func corroborates(other, failed *Subject) bool {
	p, f := other.bench.Status(other.Key), failed.bench.Status(failed.Key)
	return f.Health == prober.Failing && p.Health == prober.Passing && !p.RunLast.Before(f.RunStart) && f.RunLast.After(p.RunStart)
}
