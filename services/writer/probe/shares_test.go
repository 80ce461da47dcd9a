package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestShareLeavesCapacityForOthers(t *testing.T) {
	greedy := func(sources, targets int) (s *Schedule, most map[Share]int) {
		s = NewSchedule(512)
		most = map[Share]int{}
		for target := range targets {
			var requests []Request
			for source := range sources {
				share := Share{fmt.Sprint("source-", source), fmt.Sprint("web/", target)}
				for n := range 350 {
					k := testKey(n)
					k.Spec = Spec{Mode: HTTP, Path: fmt.Sprint("/", share)}
					requests = append(requests, Request{k, share.Source})
				}
			}
			s.SetTarget(fmt.Sprint("web/", target), requests, startTime)
		}
		for {
			a, due := s.Start(startTime, 0)
			if !due {
				return s, most
			}
			most[a.queue.share]++
		}
	}
	for _, row := range []struct {
		sources, targets int
		each, free       int // probes of the largest share, capacity that stays free
	}{
		{1, 1, 320, 192},
		{1, 2, 180, 152},
		{1, 10, 38, 136},
		{1, 100, 6, 128},
		{2, 1, 194, 124},
		{10, 1, 48, 50},
		{10, 20, 5, 30},
	} {
		t.Run(fmt.Sprintf("%d sources in %d Services each", row.sources, row.targets), func(t *testing.T) {
			s, most := greedy(row.sources, row.targets)
			each := 0
			for _, n := range most {
				each = max(each, n)
			}
			if free := s.limit - s.inFlight; each > row.each || free < row.free {
				t.Errorf(
					"the largest share has %d probes in flight, and %d are free; want at most %d, at least %d",
					each,
					free,
					row.each,
					row.free,
				)
			}
			// A new share of any source starts immediately.
			for _, share := range []Share{{"source-0", "web/late"}, {"another", "web/late"}} {
				k := testKey(0)
				k.Spec = Spec{Mode: HTTP, Path: fmt.Sprint("/", share)}
				k = k.Canonical()
				addKey(s, k, share, startTime)
				if a, due := s.Start(startTime, 0.5); !due || a.Key != k {
					t.Errorf("a probe of %v does not start", share)
				}
			}
		})
	}
}

// A machine that starts 20,000 probes per second takes 4.5 s for the first ones of nine Services with 10,000 endpoints.
func TestFirstProbesOfOthersDelayNoProbe(t *testing.T) {
	s, now := NewSchedule(512), startTime
	small := requestsFor("blue", testKey(0), testKey(1))
	s.SetTarget("web/small", small, now)
	for n := range 9 {
		var requests []Request
		for i := range 10_000 {
			key := testKey(i + 2)
			key.Port = uint16(30001 + n)
			requests = append(requests, Request{key, "blue"})
		}
		s.SetTarget(fmt.Sprint("web/large-", n), requests, now)
	}
	started := map[Key]time.Time{}
	for now.Before(startTime.Add(6 * time.Second)) {
		a, due := s.Start(now, 0)
		if !due {
			t.Fatal("nothing is due after ", now.Sub(startTime))
		}
		if last, again := started[a.Key]; a.queue.share.Target == "web/small" && again {
			if waited := now.Sub(last) - a.Key.Spec.Interval; waited > time.Millisecond {
				t.Fatalf("after %v a probe of another Service started %v late", now.Sub(startTime), waited)
			}
		}
		started[a.Key] = now
		now = now.Add(50 * time.Microsecond)
		s.Finish(a, Pass, "", now)
	}
	if got := now.Sub(started[small[0].Key]); got > small[0].Key.Spec.Interval {
		t.Errorf("an endpoint of another Service was last probed %v ago", got)
	}
}

// When a probe ends, the share that waits longest and has capacity starts the next one.
func TestBlockedShareContinuesWhenProbeEnds(t *testing.T) {
	s := NewSchedule(4)
	slow, quick := Share{"blue", "web/slow"}, Share{"blue", "web/quick"}
	var running []Attempt
	for n := range 8 {
		addKey(s, testKey(n), slow, startTime)
	}
	begin := func() int {
		began := 0
		for {
			a, due := s.Start(startTime, 0.5)
			if !due {
				return began
			}
			running, began = append(running, a), began+1
		}
	}
	first := begin()
	if first == 0 || first >= 4 {
		t.Fatalf("%d probes of one share are in flight", first)
	}
	addKey(s, testKey(100), quick, startTime)
	if n := begin(); n != 1 {
		t.Fatalf("%d probes of the other share started, want 1", n)
	}
	for range 4 * first {
		a := running[0]
		running = running[1:]
		s.Finish(a, Fail, "silent", startTime)
		begin()
	}
	for n := range 8 {
		if s.records[testKey(n).Canonical()].lastSeq == 0 {
			t.Errorf("key %d was never probed", n)
		}
	}
	for n := range 8 {
		removeKey(s, testKey(n))
	}
	removeKey(s, testKey(100))
	for _, a := range running {
		s.Finish(a, Fail, "silent", startTime)
	}
	if len(s.queues) != 0 || len(s.inFlightBySource) != 0 || len(s.readyQueues.items) != 0 || len(s.blockedQueues) != 0 ||
		len(s.expiring.items) != 0 ||
		s.inFlight != 0 {
		t.Errorf("with nothing to probe, there are %d queues, %d sources, %d ready, %d blocked, %d expiring, %d in flight",
			len(s.queues), len(s.inFlightBySource), len(s.readyQueues.items), len(s.blockedQueues), len(s.expiring.items), s.inFlight)
	}
}

// Neighbors that use all their capacity do not delay the detection of others.
func TestNeighborsDoNotDelayDetection(t *testing.T) {
	silent := func(first, n int) (keys []Key) {
		for i := range n {
			k := testKey(10_000 + first + i)
			k.Spec.Timeout = time.Minute
			keys = append(keys, k)
		}
		return keys
	}
	for name, beside := range map[string]map[string][]Request{
		"none": nil,
		"a Service with a filtered probe port and a timeout of a minute": {"web/b": requestsFor("blue", silent(0, 600)...)},
		"ten such Services": func() map[string][]Request {
			all := map[string][]Request{}
			for i := range 10 {
				all[fmt.Sprint("web/b", i)] = requestsFor("blue", silent(600*i, 600)...)
			}
			return all
		}(),
		"false addresses within a wide CIDR, in the same Service": {"web/a": requestsFor("green", silent(0, 3000)...)},
		"false addresses within a wide CIDR, in fifty Services": func() map[string][]Request {
			all := map[string][]Request{}
			for i := range 50 {
				all[fmt.Sprint("web/b", i)] = requestsFor("green", silent(100*i, 100)...)
			}
			return all
		}(),
	} {
		t.Run(name, func(t *testing.T) { checkDetectionBeside(t, beside) })
	}
}

func checkDetectionBeside(t *testing.T, beside map[string][]Request) {
	const bound = 2500 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		p := newProber()
		var keys []Key
		random := rand.New(rand.NewPCG(1, 2))
		deaths := map[netip.Addr]time.Time{}
		for n := range 100 {
			keys = append(keys, testKey(n))
			deaths[testKey(n).Address] = time.Now().Add(2*time.Minute + time.Duration(random.Float64()*float64(20*time.Second)))
		}
		p.attempt = func(ctx context.Context, k Key) (Result, string) {
			diedAt, dies := deaths[k.Address]
			switch {
			case !dies:
				select {
				case <-time.After(k.Spec.Timeout):
					return Fail, "no answer"
				case <-ctx.Done():
					return Inconclusive, ""
				}
			case time.Now().Before(diedAt):
				time.Sleep(5 * time.Millisecond)
				return Pass, ""
			}
			return Fail, "connection refused"
		}
		runProber(t, p)
		for target, requests := range beside {
			p.Set(target, requests)
		}
		time.Sleep(time.Minute + time.Second)
		p.Set("web/a", append(requestsFor("blue", keys...), beside["web/a"]...))
		time.Sleep(90 * time.Second)
		synctest.Wait()
		took := make([]time.Duration, 0, len(keys))
		for _, k := range keys {
			w := p.statusOf(k)
			if w.Health != Failing {
				t.Fatalf("the failure of %v is not detected: %+v", k.Address, w)
			}
			took = append(took, w.Since.Sub(deaths[k.Address]))
		}
		slices.Sort(took)
		t.Logf("p50 %v, worst %v", took[len(took)/2], took[len(took)-1])
		if worst := took[len(took)-1]; worst > bound {
			t.Errorf("the worst detection took %v, want at most %v", worst, bound)
		}
	})
}

// Probes of an endpoint of a small and a large Service count for the small one.
func TestSharedKeyCountsForSmallestTarget(t *testing.T) {
	p := newProber()
	shared := testKey(0)
	share := func() Share { return p.schedule.records[shared.Canonical()].queue.share }
	large := []Key{shared, testKey(1), testKey(2)}
	p.Set("web/large", requestsFor("green", large...))
	if got := share(); got != (Share{"green", "web/large"}) {
		t.Errorf("alone: %v", got)
	}
	p.Set("web/small", requestsFor("blue", shared))
	if got := share(); got != (Share{"blue", "web/small"}) {
		t.Errorf("with a small one: %v", got)
	}
	p.Set("web/small", requestsFor("red", shared))
	if got := share(); got != (Share{"red", "web/small"}) {
		t.Errorf("after its source changed: %v", got)
	}
	p.Set("web/small", nil)
	if got := share(); got != (Share{"green", "web/large"}) {
		t.Errorf("after the small one was removed: %v", got)
	}
}
