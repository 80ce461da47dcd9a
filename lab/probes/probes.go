// Package probes tests and measures the prober on real backends that die and come back, and with more targets than
// any Service should have. Simulated time and simulated backends are left to the prober's own tests.
package probes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// Way is how to probe, and what has to be there to answer.
type Way struct {
	Mode     probe.Mode
	Protocol backend.Protocol
}

// Ways are all.
var Ways = []Way{{probe.TCP, backend.HTTP}, {probe.HTTP, backend.HTTP}, {probe.HTTPS, backend.HTTPS}, {probe.GRPC, backend.GRPC}}

// Within these a death has to be noticed (p99), by whether the backend refuses or is silent.
const (
	Refuses = 2500 * time.Millisecond
	Silent  = 4500 * time.Millisecond
)

// port is that of all backends; the one below it answers for the bench's targets at all addresses.
const port = 31080

// Bench is a running prober and the backends that it probes, each a target of its own.
type Bench struct {
	*probe.Prober

	registry *prometheus.Registry
	cancel   context.CancelFunc
	running  sync.WaitGroup
	failed   error // of the prober, once it has ended

	mu       sync.Mutex
	kicks    map[string]chan struct{} // by target
	subjects []*Subject
}

// Start starts a prober. Stop it.
func Start() *Bench {
	b := &Bench{registry: prometheus.NewRegistry(), kicks: map[string]chan struct{}{}}
	b.Prober = probe.NewProber(slog.New(slog.DiscardHandler), b.registry)
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.running.Go(func() { b.failed = b.Run(ctx) })
	b.running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-b.Changed():
				b.mu.Lock()
				for target := range b.TakeChanged() {
					select {
					case b.kicks[target] <- struct{}{}:
					default: // it is told already, or none of ours
					}
				}
				b.mu.Unlock()
			}
		}
	})
	return b
}

// Stop ends the prober and its backends.
func (b *Bench) Stop() error {
	b.cancel()
	b.running.Wait()
	err := b.failed
	for _, s := range b.subjects {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Probes is the number of probes by result: pass, fail or inconclusive.
func (b *Bench) Probes(results ...string) (float64, error) {
	families, err := b.registry.Gather()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != "slicefeed_writer_probes_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				for _, result := range results {
					if label.GetName() == "result" && label.GetValue() == result {
						sum += metric.GetCounter().GetValue()
					}
				}
			}
		}
	}
	return sum, nil
}

// Subject is one backend under one prober.
type Subject struct {
	*backend.Backend

	Key probe.Key

	bench *Bench
	kick  chan struct{}
}

// Add makes a backend at an address of its own, and has it probed as a target of its own.
func (b *Bench) Add(how Way, address netip.Addr) (*Subject, error) {
	if err := netns.AddAddr(address); err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(address, port)
	started, err := backend.StartSpeaking(how.Protocol, at.String(), at)
	if err != nil {
		return nil, err
	}
	s := &Subject{
		Backend: started, bench: b, kick: make(chan struct{}, 1),
		Key: probe.Key{Address: address, Port: port, Spec: probe.Spec{Mode: how.Mode}},
	}
	b.mu.Lock()
	b.kicks[address.String()] = s.kick
	b.subjects = append(b.subjects, s)
	b.mu.Unlock()
	b.Set(address.String(), requestsFor(s.Key))
	return s, nil
}

// Until waits for a status, and returns when it was there.
func (s *Subject) Until(ctx context.Context, want probe.Health) (time.Time, error) {
	for s.health() != want {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%s %s is %v, not %v", s.Key.Spec.Mode, s.Name(), s.health(), want)
		case <-s.kick:
		}
	}
	return time.Now(), nil
}

func (s *Subject) health() probe.Health {
	return s.bench.Statuses(requestsFor(s.Key))[0].Health
}

// Die kills the backend and brings it back, so many times, at any time, and reports how long
// each took to be noticed.
func (s *Subject) Die(ctx context.Context, times int, set func(dead bool) error, noticed func(dead bool, after time.Duration)) error {
	if _, err := s.Until(ctx, probe.Passing); err != nil {
		return err
	}
	for range times {
		for _, dead := range []bool{true, false} {
			AnyTime(ctx, 0, probe.DefaultInterval)
			began := time.Now()
			if err := set(dead); err != nil {
				return err
			}
			status := probe.Passing
			if dead {
				status = probe.Failing
			}
			ended, err := s.Until(ctx, status)
			if err != nil {
				return err
			}
			noticed(dead, ended.Sub(began))
		}
	}
	return nil
}

// AnyTime waits for a part of an interval, so that what follows has nothing to do with
// the prober's pace.
func AnyTime(ctx context.Context, atLeast, atMost time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(atLeast + rand.N(atMost-atLeast)):
	}
}

// requestsFor returns requests for endpoints of one source, blue.
func requestsFor(keys ...probe.Key) []probe.Request {
	requests := make([]probe.Request, len(keys))
	for i, key := range keys {
		requests[i] = probe.Request{Key: key, Source: "blue"}
	}
	return requests
}
