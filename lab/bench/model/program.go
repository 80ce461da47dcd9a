package model

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/load"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/prober"
)

// crowd is how much of a crowd the inventory's program is measured with.
type crowd struct {
	nodes, subscribers, changes int
	rest                        time.Duration
}

// program measures what subscribers cost the inventory's own program, by what it takes with more
// of them than before.
func (in *Inputs) program(ctx context.Context, env report.Env, of crowd) (err error) {
	dir, err := os.MkdirTemp("", "slicefeed-model-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is of no use to anyone
	fleet, err := load.NewFleet(dir, of.nodes)
	if err != nil {
		return err
	}
	site, err := load.NewSite(dir)
	if err != nil {
		return err
	}
	server, err := site.Inventory(fleet)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(20*time.Second)) }()

	in.Nodes, in.FewerThanAll, in.Subscribers = float64(of.nodes), float64(of.subscribers/4), float64(of.subscribers)
	m := meter{server: server, fleet: fleet, of: of}
	alone, err := m.measure(ctx, env, 1)
	if err != nil {
		return err
	}
	few, err := m.measure(ctx, env, of.subscribers/4)
	if err != nil {
		return err
	}
	all, err := m.measure(ctx, env, of.subscribers)
	if err != nil {
		return err
	}
	n := float64(of.subscribers)
	in.Base = alone.resident
	in.Stream = max(0, all.resident-alone.resident) * 1024 / (n - 1)
	in.Beat = all.rest.beyond(alone.rest, 0)
	in.Change = all.changes.beyond(alone.changes, alone.rest.rate())
	in.ChangeFewer = few.changes.beyond(alone.changes, alone.rest.rate())
	in.Arrive = all.back / n
	in.Reset = max(0, all.come-all.back) / n / float64(of.nodes) * 1000
	return nil
}

// meter measures one server with one crowd after the other.
type meter struct {
	server  *load.Server
	fleet   *load.Fleet
	of      crowd
	changed int
}

// messages counts those of all streams.
const messages = "slicefeed_inventory_stream_messages_total"

// costs are what a crowd costs: CPU in microseconds, memory in MB.
type costs struct {
	come, back    float64 // all of them come, with nothing and with the digest
	changes, rest phase
	resident      float64
}

// phase is what the server did in a while.
type phase struct {
	cpu, messages float64
	took          time.Duration
}

// rate is what it computed in a second.
func (p phase) rate() float64 { return p.cpu / p.took.Seconds() }

// beyond is what a message costs that there was not in another phase, in which as much was done
// otherwise; if that one was shorter, the server has gone on looking at its nodes for longer.
func (p phase) beyond(other phase, idle float64) float64 {
	return max(0, p.cpu-other.cpu-(p.took-other.took).Seconds()*idle) / (p.messages - other.messages)
}

func (m *meter) measure(ctx context.Context, env report.Env, subscribers int) (c costs, err error) {
	fmt.Fprintf(env.Out, "%d subscribers\n", subscribers)
	crowd, err := load.NewCrowd(m.server, subscribers, m.of.nodes)
	if err != nil {
		return c, err
	}
	come := func() error {
		_, err := crowd.Come(ctx)
		return err
	}
	if c.come, err = m.cpu(come); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, crowd.Leave()) }()
	if err := crowd.Leave(); err != nil {
		return c, err
	}
	if c.back, err = m.cpu(come); err != nil {
		return c, err
	}
	c.changes, err = m.phase(func() error {
		for range m.of.changes {
			if err := m.change(ctx, crowd); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	if c.rest, err = m.phase(func() error { return sleep(ctx, m.of.rest) }); err != nil {
		return c, err
	}
	memory, err := m.server.Memory()
	c.resident = memory.Resident
	return c, err
}

func (m *meter) change(ctx context.Context, crowd *load.Crowd) error {
	a := crowd.ExpectChange()
	m.changed++
	at, err := m.fleet.Flip(m.changed / 2 % m.of.nodes) // each one there and back
	if err != nil {
		return err
	}
	_, err = crowd.Wait(ctx, a, at, time.Minute)
	return err
}

// cpu is what the server computes while something is done.
func (m *meter) cpu(do func() error) (float64, error) {
	p, err := m.phase(do)
	return p.cpu, err
}

func (m *meter) phase(do func() error) (p phase, err error) {
	before, err := m.server.Metrics()
	if err != nil {
		return p, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return p, err
	}
	p.took = time.Since(began)
	after, err := m.server.Metrics()
	p.cpu, p.messages = (after.CPU()-before.CPU())*1e6, after.Sum(messages)-before.Sum(messages)
	return p, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// probes measures the prober at so many backends of our own, which answer at once.
func (in *Inputs) probes(ctx context.Context, targets int, of time.Duration) error {
	var lc net.ListenConfig
	backend, err := lc.Listen(ctx, "tcp4", "0.0.0.0:0")
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := backend.Accept()
			if err != nil {
				return
			}
			_ = conn.Close() // the probe has its answer
		}
	}()
	defer func() { _ = backend.Close(); <-ended }()
	ctx, cancel := context.WithCancel(ctx)
	probed := make(chan struct{})
	p := prober.New(prober.Config{Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	go func() {
		defer close(probed)
		_ = p.Run(ctx) // it ends as it is told to
	}()
	defer func() { cancel(); <-probed }()
	port := netip.MustParseAddrPort(backend.Addr().String()).Port()
	keys := make([]probe.Key, targets)
	for i := range keys {
		keys[i] = probe.Key{
			Address: netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), Port: port,
			Spec: probe.Spec{Mode: probe.TCP, Interval: seconds(probeEvery), Timeout: seconds(probeTimeout)},
		}
	}
	p.Set("all", prober.RequestsFor("blue", keys...))
	if err := sleep(ctx, 2*seconds(probeEvery)); err != nil { // until they are spread
		return err
	}
	before, err := figures.UsageOf(os.Getpid())
	if err != nil {
		return err
	}
	if err := sleep(ctx, of); err != nil {
		return err
	}
	after, err := figures.UsageOf(os.Getpid())
	in.Probe = micro(after.CPU-before.CPU) / (float64(targets) * of.Seconds() / (probeEvery * 0.95)) // jitter shortens by 5 % on average
	return err
}
