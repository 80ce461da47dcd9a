// Package probes has the writer's prober judge real backends in real time, in a namespace
// of its own. It promises figures for each way in which a backend fails, against the
// prober's bounds; it refuses simulated time and backends, which the prober's own tests have.
package probes

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/services/writer/prober"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" { // inside already: a child of the load test
		os.Exit(standIn(os.Stdin, os.Stdout))
	}
	netns.Main(checked{m})
}

type checked struct{ m *testing.M }

// Run says so if a prober left anything behind.
func (c checked) Run() int {
	code := c.m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// asks is a way to ask, and what has to be there to answer.
type asks struct {
	mode     prober.Mode
	protocol backend.Protocol
}

var ways = []asks{{prober.TCP, backend.HTTP}, {prober.HTTP, backend.HTTP}, {prober.HTTPS, backend.HTTPS}, {prober.GRPC, backend.GRPC}}

const port = 30080

// bench is a running prober and the backends that it probes, each a target of its own.
type bench struct {
	*prober.Prober

	registry *prometheus.Registry

	mu    sync.Mutex
	kicks map[string]chan struct{}
}

// newBench starts a prober that ends with the test.
func newBench(t *testing.T) *bench {
	b := &bench{registry: prometheus.NewRegistry(), kicks: map[string]chan struct{}{}}
	b.Prober = prober.New(prober.Config{Log: slog.New(slog.DiscardHandler), Registerer: b.registry})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-b.Changed():
				b.mu.Lock()
				for _, target := range b.Take() {
					select {
					case b.kicks[target] <- struct{}{}:
					default:
					}
				}
				b.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return b
}

// probes is how many probes ended so.
func (b *bench) probes(t *testing.T, result string) float64 {
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != "slicefeed_writer_probes_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "result" && label.GetValue() == result {
					sum += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// subject is one backend under one prober.
type subject struct {
	*backend.Backend

	bench *bench
	key   prober.Key
	kick  chan struct{}
}

// add makes a backend at an address of its own, and has it probed.
func (b *bench) add(t *testing.T, how asks, address netip.Addr) *subject {
	t.Helper()
	if err := netns.AddAddr(address); err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(address, port)
	started, err := backend.StartSpeaking(how.protocol, at.String(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &subject{
		Backend: started, bench: b, kick: make(chan struct{}, 1),
		key: prober.Key{Address: address, Port: port, Spec: prober.Spec{Mode: how.mode}},
	}
	b.mu.Lock()
	b.kicks[at.String()] = s.kick
	b.mu.Unlock()
	b.Set(at.String(), []prober.Key{s.key})
	return s
}

// until waits for a word, and returns when it was there for whoever reads the prober.
func (s *subject) until(ctx context.Context, want prober.Health) (time.Time, error) {
	for s.bench.Word(s.key).Health != want {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%s %s is %v, not %v", s.key.Spec.Mode, s.Name(), s.bench.Word(s.key).Health, want)
		case <-s.kick:
		}
	}
	return time.Now(), nil
}

// anyTime waits for a part of an interval, so that what follows has nothing to do with
// the prober's pace.
func anyTime(ctx context.Context, atLeast, atMost time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(atLeast + rand.N(atMost-atLeast)):
	}
}
