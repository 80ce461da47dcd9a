package probes

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

const (
	backends = 20 // of each mode and failure
	deaths   = 2  // of each backend
	slack    = 1.3
)

// failures are the ways to fail. Connecting is all that tcp does, so what accepts
// has not failed for it.
var failures = []struct {
	name    string
	mode    backend.Mode // none: its address goes
	within  time.Duration
	accepts bool
}{
	{"refuses", backend.Refuse, Refuses, false},
	{"its address is gone", "", Refuses, false},
	{"answers 500, or NOT_SERVING", backend.Error, Refuses, true},
	{"drops every packet", backend.Silent, Silent, false},
	{"accepts and hangs", backend.Hang, Silent, true},
}

// cell is a mode and a failure, with what was measured.
type cell struct {
	failure  string
	mode     probe.Mode
	within   time.Duration
	mu       sync.Mutex
	noticed  []time.Duration
	redeemed []time.Duration
}

// live kills a backend and brings it back, again and again.
func (c *cell) live(ctx context.Context, s *Subject, set func(dead bool) error) error {
	return s.Die(ctx, deaths, set, func(dead bool, after time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if dead {
			c.noticed = append(c.noticed, after)
		} else {
			c.redeemed = append(c.redeemed, after)
		}
	})
}

func TestFailuresAreNoticedWithinTheBounds(t *testing.T) {
	skipUnlessLoad(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, clock := newBench(t), newClock(t)
	var cells []*cell
	var living sync.WaitGroup
	for _, failure := range failures {
		for _, how := range Ways {
			if failure.accepts && how.Mode == probe.TCP {
				continue
			}
			c := &cell{failure: failure.name, mode: how.Mode, within: failure.within}
			cells = append(cells, c)
			for n := range backends {
				s := b.add(t, how, netip.AddrFrom4([4]byte{10, 0, byte(len(cells)), byte(1 + n)}))
				set := func(dead bool) error {
					switch {
					case failure.mode == "" && dead:
						return netns.DelAddr(s.Key.Address)
					case failure.mode == "":
						return netns.AddAddr(s.Key.Address)
					case dead:
						return s.Set(failure.mode)
					default:
						return s.Set(backend.Serve)
					}
				}
				living.Go(func() {
					if err := c.live(ctx, s, set); err != nil {
						clock.complainf("%v", err)
					}
				})
			}
		}
	}
	living.Wait()
	more := clock.measured()
	if clock.complained() { // there may be nothing to count
		clock.judge()
		return
	}

	var table strings.Builder
	fmt.Fprintf(&table, "%d deaths each, seconds from the death (or the recovery) to the status\n", backends*deaths)
	fmt.Fprintf(&table, "%-28s %-6s %6s %6s %6s   %9s %6s\n", "failure", "mode", "bound", "p50", "p99", "back: p50", "p99")
	for _, c := range cells {
		p99 := figures.Percentile(c.noticed, 99)
		fmt.Fprintf(
			&table,
			"%-28s %-6s %6.1f %6.2f %6.2f   %9.2f %6.2f\n",
			c.failure,
			c.mode,
			c.within.Seconds(),
			figures.Percentile(c.noticed, 50).Seconds(),
			p99.Seconds(),
			figures.Percentile(c.redeemed, 50).Seconds(),
			figures.Percentile(c.redeemed, 99).Seconds(),
		)
		if len(c.noticed) != backends*deaths || len(c.redeemed) != backends*deaths {
			clock.complainf("%s, %s: %d deaths and %d recoveries were noticed, want %d of each", c.mode, c.failure, len(c.noticed),
				len(c.redeemed), backends*deaths)
		}
		// The bounds are the prober's; the slack is for machines that have other things to do.
		if limit := time.Duration(slack*float64(c.within)) + more; p99 > limit {
			clock.complainf("%s, %s: p99 is %v, more than %v", c.mode, c.failure, p99, limit)
		}
		if p99 := figures.Percentile(c.redeemed, 99); p99 > time.Duration(slack*float64(Refuses))+more {
			clock.complainf("%s, %s: p99 of coming back is %v", c.mode, c.failure, p99)
		}
	}
	t.Log("\n" + table.String())
	clock.judge()
}

// A restart, a burst of lost packets, an error or two: shorter than the time between two
// re-probes, and as often as it likes.
func TestHiccupsChangeNothing(t *testing.T) {
	skipUnlessLoad(t)
	t.Parallel()
	const (
		each   = 6
		hiccup = 150 * time.Millisecond
		// Two probes of a backend that fails are further apart. A hiccup that a busy machine makes longer than
		// that is a short death, and the prober is right to notice it.
		apart = 190 * time.Millisecond
	)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	b, clock := newBench(t), newClock(t)
	var living sync.WaitGroup
	var judged atomic.Int64
	kinds := 0
	for _, mode := range []backend.Mode{backend.Refuse, backend.Silent, backend.Error} {
		for _, how := range Ways {
			if mode == backend.Error && how.Mode == probe.TCP {
				continue
			}
			kinds++
			for n := range each {
				s := b.add(t, how, netip.AddrFrom4([4]byte{10, 1, byte(kinds), byte(1 + n)}))
				living.Go(func() {
					for ctx.Err() == nil {
						before, err := s.Until(ctx, probe.Passing)
						if err != nil {
							if ctx.Err() == nil || judged.Load() == 0 {
								clock.complainf("%v", err)
							}
							return
						}
						AnyTime(ctx, 500*time.Millisecond, time.Second)
						began := time.Now()
						for _, m := range []backend.Mode{mode, backend.Serve} {
							if err := s.Set(m); err != nil {
								t.Error(err)
							}
							if m != backend.Serve {
								<-time.After(hiccup)
							}
						}
						lasted := time.Since(began)
						AnyTime(ctx, time.Second, 1500*time.Millisecond)
						if ctx.Err() != nil || lasted > apart {
							continue
						}
						judged.Add(1)
						if w := b.Statuses(requestsFor(s.Key))[0]; w.Health != probe.Passing || w.Since.After(before) {
							clock.complainf("%s, %s: a hiccup of %v, and %v since %v after it began", how.Mode, mode, lasted, w.Health,
								w.Since.Sub(began))
						}
					}
				})
			}
		}
	}
	living.Wait()
	clock.measured()
	failed, passed := b.probes(t, "fail"), b.probes(t, "pass")
	t.Logf("%.0f of %.0f probes failed, and no status changed", failed, failed+passed)
	t.Logf("%d hiccups were short enough to be judged", judged.Load())
	if judged.Load() < 50 {
		clock.complainf("only %d hiccups were short enough to be judged: this shows nothing", judged.Load())
	}
	if failed < 20 {
		clock.complainf("only %.0f probes met a hiccup: this shows nothing", failed)
	}
	clock.judge()
}
