package probe

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// requestsFor returns requests for endpoints of one source.
func requestsFor(source string, keys ...Key) []Request {
	requests := make([]Request, len(keys))
	for i, key := range keys {
		requests[i] = Request{key, source}
	}
	return requests
}

func (p *Prober) statusOf(key Key) Status { return p.Statuses([]Request{{Key: key}})[0] }

func newProber() *Prober {
	return NewProber(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// runProber runs a prober until the end of the test, and waits for it.
func runProber(t testing.TB, p *Prober) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestStatusReachesAllSharingTargets(t *testing.T) {
	l := listenTCP(t)
	defer l.Close()
	p := newProber()
	up, down := keyFor(t, l.Addr().String(), Spec{Mode: TCP}), keyFor(t, closedAddress(t), Spec{Mode: TCP})
	p.Set("web/b", requestsFor("blue", up))
	p.Set("web/a", requestsFor("blue", up, down))
	p.Set("web/c", requestsFor("blue", Key{Address: up.Address, Port: up.Port})) // off
	runProber(t, p)

	dirty := map[string]bool{}
	for p.statusOf(up).Health != Passing || p.statusOf(down).Health != Failing {
		<-p.Changed()
		for target := range p.TakeChanged() {
			dirty[target] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"web/a": true, "web/b": true}, dirty); diff != "" {
		t.Errorf("dirty (-want +got):\n%s", diff)
	}
	if w := p.statusOf(down); w.Detail != "connection refused" || w.Since.IsZero() {
		t.Errorf("status of the closed address: %+v", w)
	}

	p.Set("web/b", nil)
	if got := p.statusOf(up).Health; got != Passing {
		t.Errorf("%v: a key that web/a still has lost its status", got)
	}
	p.Set("web/a", requestsFor("blue", down))
	if got := p.statusOf(up).Health; got != Pending {
		t.Errorf("%v: a key without targets has a status", got)
	}
	if err := testutil.CollectAndCompare(p.metrics.endpoints, strings.NewReader(`
# HELP slicefeed_writer_probed_endpoints Number of probed backends (address, port and spec; one that Services share counts once), by probe status.
# TYPE slicefeed_writer_probed_endpoints gauge
slicefeed_writer_probed_endpoints{health="failing"} 1
slicefeed_writer_probed_endpoints{health="passing"} 0
slicefeed_writer_probed_endpoints{health="pending"} 0
`)); err != nil {
		t.Error(err)
	}
	if n := testutil.ToFloat64(p.metrics.probes.WithLabelValues("tcp", "fail")); n < 3 {
		t.Errorf("%v failed probes counted, want 3", n)
	}
}

// The prober in simulated time, with backends that fail while it runs.
func TestDetectsFailuresWithinBounds(t *testing.T) {
	for name, row := range map[string]struct {
		answer, within time.Duration
	}{
		"refuses": {0, 2500 * time.Millisecond},
		"silent":  {time.Second, 4500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProber()
				died := time.Now().Add(10 * time.Second)
				p.attempt = func(context.Context, Key) (Result, string) {
					if time.Now().Before(died) {
						return Pass, ""
					}
					time.Sleep(row.answer)
					return Fail, "dead"
				}
				var keys []Key
				for n := range 200 {
					keys = append(keys, testKey(n))
				}
				p.Set("web/a", requestsFor("blue", keys...))
				runProber(t, p)
				time.Sleep(time.Until(died.Add(row.within)))
				synctest.Wait()
				for _, k := range keys {
					if p.statusOf(k).Health != Failing {
						t.Errorf("%v is not failing within %v", k.Address, row.within)
					}
				}
			})
		})
	}
}

func TestProbesNewKeyImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber()
		p.attempt = func(context.Context, Key) (Result, string) { return Pass, "" }
		runProber(t, p)
		time.Sleep(time.Minute)
		began := time.Now()
		p.Set("web/a", requestsFor("blue", testKey(1)))
		<-p.Changed()
		if took := time.Since(began); took != 0 {
			t.Errorf("passing after %v", took)
		}
	})
}

// Thousands of keys take only as many sockets and goroutines as there are probes in flight.
func TestThousandsOfKeysStayWithinLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber()
		var now, most, started atomic.Int64
		p.attempt = func(context.Context, Key) (Result, string) {
			started.Add(1)
			for n := now.Add(1); ; {
				if old := most.Load(); old >= n || most.CompareAndSwap(old, n) {
					break
				}
			}
			time.Sleep(20 * time.Millisecond)
			now.Add(-1)
			return Pass, ""
		}
		const targets, each = 5, 1000
		const backlog = targets * each / maxInFlight * 20 * time.Millisecond
		for i := range targets {
			var keys []Key
			for n := range each {
				keys = append(keys, testKey(i*each+n))
			}
			p.Set(fmt.Sprint("web/", i), requestsFor("blue", keys...))
		}
		before := runtime.NumGoroutine()
		runProber(t, p)
		// Two intervals, and the backlog of the first round: some keys get their first turn only when
		// the probes before them have ended.
		time.Sleep(4*time.Second + backlog)
		if got := runtime.NumGoroutine() - before; got > maxInFlight+2 {
			t.Errorf("%d goroutines", got)
		}
		if most.Load() > maxInFlight {
			t.Errorf("%d in flight", most.Load())
		}
		if want := int64(targets * each * 3); started.Load() < want { // at once, and within each 2 s
			t.Errorf("%d probes, want at least %d", started.Load(), want)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.schedule.healthCounts[Passing] != targets*each {
			t.Errorf("%d pass", p.schedule.healthCounts[Passing])
		}
	})
}

func TestRunWaitsForProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber()
		var ended atomic.Bool
		p.attempt = func(ctx context.Context, _ Key) (Result, string) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended.Store(true)
			return Inconclusive, ""
		}
		p.Set("web/a", requestsFor("blue", testKey(1)))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || !ended.Load() {
			t.Errorf("%v, ended %v", err, ended.Load())
		}
		if p.statusOf(testKey(1)).Health != Pending {
			t.Error("a probe that ended with the context changed the status")
		}
	})
}

func TestUnusedSpecFieldsAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int64
		p := newProber()
		p.attempt = func(context.Context, Key) (Result, string) { started.Add(1); return Pass, "" }
		one, same, other := testKey(1), testKey(1), testKey(1)
		same.Spec = Spec{
			Mode:     TCP,
			Path:     "/healthz",
			Host:     "web.example",
			Service:  "x",
			TLS:      true,
			Interval: DefaultInterval,
			Timeout:  DefaultTimeout,
		}
		p.Set("web/a", requestsFor("blue", one))
		p.Set("web/b", requestsFor("blue", same))
		runProber(t, p)
		synctest.Wait()
		if got := p.statusOf(same).Health; started.Load() != 1 || got != Passing {
			t.Errorf("%d probes for two targets of one key, which is %v", started.Load(), got)
		}
		if diff := cmp.Diff(map[string]struct{}{"web/a": {}, "web/b": {}}, p.TakeChanged()); diff != "" {
			t.Errorf("changed targets (-want +got):\n%s", diff)
		}

		// Another spec is another key: it is pending, and probed immediately.
		other.Spec = Spec{Mode: HTTP}
		if got := p.statusOf(other).Health; got != Pending {
			t.Errorf("a changed spec is %v before its first probe", got)
		}
		p.Set("web/b", requestsFor("blue", other))
		synctest.Wait()
		if p.statusOf(other).Health != Passing || p.statusOf(one).Health != Passing || started.Load() != 2 {
			t.Errorf("the new spec is %v, the old one %v after %d probes", p.statusOf(other).Health, p.statusOf(one).Health, started.Load())
		}
	})
}
