// Package propagation measures the main job: how long after a Node changed in one API server
// the slice says so in the other, against a loop that does nothing else. It promises that
// both sides are measured by the same code, in turn, on the same parts.
package propagation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const (
	usualSamples = 500
	warmUp       = 20
	readyWorkers = 3                     // beside the one that toggles
	pause        = 10 * time.Millisecond // between samples, so that none meets the end of the one before
)

// Run is the section of the bench.
func Run(ctx context.Context, env report.Env) (*report.Section, error) {
	programs, err := controlplane.Build(ctx, env.Out)
	if err != nil {
		return nil, err
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return nil, err
	}
	samples := usualSamples
	if env.Quick {
		samples = 100
	}
	p, err := pair.Start(ctx, pair.Options{
		Programs: programs,
		Writer:   map[string]string{"HEALTH_CHECK_MODE": "off", "SHRINK_WINDOW": "0"},
	})
	if err != nil {
		return nil, err
	}
	found, err := propagation(ctx, env.Out, p, samples)
	return found, errors.Join(err, p.Stop())
}

// propagation toggles one node for each side in turn: patch of the Node's status in one API
// server, until the watch event of the slice in the other.
func propagation(ctx context.Context, out io.Writer, p *pair.Pair, samples int) (*report.Section, error) {
	if err := p.StartHalves(ctx); err != nil {
		return nil, err
	}
	if _, err := p.WaitLeading(ctx); err != nil {
		return nil, err
	}
	worker, err := populate(ctx, p)
	if err != nil {
		return nil, err
	}
	raw, err := newFloor(ctx, p)
	if err != nil {
		return nil, err
	}
	ours, err := newSight(ctx, p.Consuming, pair.Namespace)
	if err != nil {
		return nil, err
	}

	measuring, stop := context.WithCancel(ctx)
	loops, measuring := errgroup.WithContext(measuring)
	loops.Go(func() error { return ignoreEnd(measuring, raw.loop(measuring)) })
	floorTimes, pairTimes := make([]time.Duration, 0, samples), make([]time.Duration, 0, samples)
	loops.Go(func() error {
		defer stop()
		for i := range warmUp + samples {
			ready := i%2 == 1
			floor, err := raw.sight.measure(measuring, raw.node, raw.address, ready)
			if err != nil {
				return fmt.Errorf("sample %d of the floor: %w", i, err)
			}
			took, err := ours.measure(measuring, worker, worker.Address, ready)
			if err != nil {
				return fmt.Errorf("sample %d of the pair: %w", i, err)
			}
			if i < warmUp {
				continue
			}
			floorTimes, pairTimes = append(floorTimes, floor), append(pairTimes, took)
			if n := i - warmUp + 1; n%50 == 0 {
				fmt.Fprintf(out, "%d of %d samples\n", n, samples)
			}
		}
		return nil
	})
	if err := loops.Wait(); err != nil {
		return nil, err
	}
	return section(floorTimes, pairTimes), nil
}

// populate makes the ready workers and the one that toggles, and waits until all are served.
func populate(ctx context.Context, p *pair.Pair) (toggles *pair.Worker, err error) {
	var addresses []netip.Addr
	for i := range readyWorkers + 1 {
		address := netip.AddrFrom4([4]byte{10, 0, 1, byte(10 + i)})
		toggles, err = p.AddWorker(pair.WorkerOptions{Name: fmt.Sprintf("worker-%d", i), Address: address})
		if err != nil {
			return nil, err
		}
		if err := toggles.Join(ctx); err != nil {
			return nil, err
		}
		addresses = append(addresses, address)
	}
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, err = p.WaitSlices(waiting, pair.AreJust(pair.Ready, addresses...))
	return toggles, err
}

// ignoreEnd takes the end of the measurement for what it is.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // so it was meant
	}
	return err
}
