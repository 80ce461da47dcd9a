package propagation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// turn has a Node's kubelet say that it is ready, or not.
func turn(ready bool) func(*pair.Worker) change {
	return func(w *pair.Worker) change {
		shows := isUnready
		if ready {
			shows = isReady
		}
		return change{w, func(ctx context.Context) error { return w.SetReady(ctx, ready) }, shows}
	}
}

// toggle is the main measurement.
func (b *bench) toggle(ctx context.Context, f *findings) error {
	toggles := b.workers[len(b.workers)-1]
	var all sides
	for i := range warmUp + f.toggles {
		if err := b.both(ctx, &all, turn(i%2 == 1), toggles); err != nil {
			return err
		}
		if n := i + 1 - warmUp; n > 0 && n%200 == 0 {
			fmt.Fprintf(b.out, "%d of %d\n", n, f.toggles)
		}
	}
	f.floor, f.pair = all.floor[warmUp:], all.pair[warmUp:]
	return nil
}

// withoutPolicy toggles the node while no admission policy looks at what either side writes.
func (b *bench) withoutPolicy(ctx context.Context, f *findings) error {
	back, err := b.pair.SuspendPolicy(ctx)
	if err != nil {
		return err
	}
	toggles := b.workers[len(b.workers)-1]
	for i := range f.freely {
		if err := b.both(ctx, &f.free, turn(i%2 == 1), toggles); err != nil {
			return err
		}
	}
	return back(ctx)
}

// stages are where the time of a typical change goes.
type stages struct {
	took    []time.Duration
	whole   time.Duration
	samples int
}

// trace goes on while both halves are traced. It is apart, since that costs something.
func (b *bench) trace(ctx context.Context, f *findings) error {
	const margin = 300 * time.Millisecond // for the traces to begin
	toggles := b.workers[len(b.workers)-1]
	halves := []*pair.Half{b.pair.Inventory, b.pair.Writers[0]}
	passed := make([][]mark, len(halves))
	tracing, inTrace := errgroup.WithContext(ctx)
	for i, half := range halves {
		tracing.Go(func() (err error) {
			passed[i], err = traceOf(inTrace, half, f.traced+2*margin)
			return err
		})
	}
	time.Sleep(margin) // nobody tells that a trace has begun; what came too early would be left out
	var all sides
	for began := time.Now(); time.Since(began) < f.traced; {
		if err := b.both(ctx, &all, turn(len(all.pair)%2 == 1), toggles); err != nil {
			return err
		}
	}
	if len(all.pair)%2 == 1 { // it is left ready
		if err := b.both(ctx, &sides{}, turn(true), toggles); err != nil {
			return err
		}
	}
	if err := tracing.Wait(); err != nil {
		return err
	}
	var err, errFloor error
	f.pairStages, err = newStages(all.pair, append(passed[0], passed[1]...), pairStages)
	f.floorStages, errFloor = newStages(all.floor, b.floor.passed(), floorStages)
	return errors.Join(err, errFloor)
}

func newStages(samples []sample, passed []mark, of []stage) (stages, error) {
	kept, durations := split(samples, passed, of)
	if len(kept) < len(samples)/2 {
		return stages{}, fmt.Errorf("%d of %d changes have passed all milestones of the traces", len(kept), len(samples))
	}
	s := stages{samples: len(kept)}
	s.took, s.whole = typical(kept, durations)
	return s, nil
}

// pace is what the inventory leaves between two requests to the cloud: a node that joins sooner after another waits.
const pace = 5 * time.Second

// come has nodes join, whose machines the cloud shows already, and leave.
func (b *bench) come(ctx context.Context, f *findings) error {
	for range f.joins {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pace):
		}
		w, err := b.add()
		if err != nil {
			return err
		}
		if err := take(ctx, &f.joined, change{w, w.Join, isReady}, b.sight); err != nil {
			return err
		}
		if err := take(ctx, &f.left, change{w, w.Leave, isGone}, b.sight); err != nil {
			return err
		}
	}
	return nil
}

// drain has the autoscaler announce that it takes a Node away, or take that back.
func drain(on bool) func(*pair.Worker) change {
	return func(w *pair.Worker) change {
		shows := isReady
		if on {
			shows = isUnready
		}
		return change{w, func(ctx context.Context) error { return w.Drain(ctx, on) }, shows}
	}
}

// undrain has further nodes drain, and measures until each is served again. No guard holds that up.
func (b *bench) undrain(ctx context.Context, f *findings) error {
	known := len(b.workers)
	for range f.undrain {
		if _, err := b.hire(ctx); err != nil {
			return err
		}
	}
	further := b.workers[known:]
	if err := b.until(ctx, further, isReady); err != nil {
		return err
	}
	if err := b.drainAll(ctx, further); err != nil {
		return err
	}
	if err := b.floor.imitate(ctx, b.pair, b.floorWorker.Address); err != nil {
		return err
	}
	if err := b.serveAgain(ctx, &f.undrained, further); err != nil {
		return err
	}
	return b.drainAll(ctx, further)
}

func (b *bench) until(ctx context.Context, workers []*pair.Worker, shows func(*discoveryv1.EndpointSlice, string) bool) error {
	_, err := b.sight.until(ctx, 1, func(slice *discoveryv1.EndpointSlice) bool {
		return !slices.ContainsFunc(workers, func(w *pair.Worker) bool { return !shows(slice, w.Address.String()) })
	})
	return err
}

func (b *bench) drainAll(ctx context.Context, workers []*pair.Worker) error {
	var uncounted []sample
	for _, w := range workers {
		if err := take(ctx, &uncounted, drain(true)(w), b.sight); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) serveAgain(ctx context.Context, into *sides, workers []*pair.Worker) error {
	var uncounted []sample
	for _, w := range workers {
		err := take(ctx, &uncounted, drain(true)(b.floorWorker), b.floor.sight)
		if err == nil {
			err = b.both(ctx, into, drain(false), w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// guarded starts the writer anew with everything at its default, and measures what that costs and
// how soon a dead backend is out.
func (b *bench) guarded(ctx context.Context, f *findings) error {
	writer := b.pair.Writers[0]
	for name := range bare {
		writer.Set(name, "")
	}
	if err := writer.Terminate(10 * time.Second); err != nil {
		return err
	}
	if err := writer.Start(ctx); err != nil {
		return err
	}
	if _, err := b.pair.WaitLeading(ctx); err != nil {
		return err
	}
	further := b.workers[len(b.workers)-f.undrain:]
	if err := b.serveAgain(ctx, &sides{}, further[:1]); err != nil { // waits until probes have passed
		return err
	}
	if err := b.serveAgain(ctx, &f.guarded, further[1:]); err != nil {
		return err
	}
	var err, errSilent error
	f.refused, err = b.die(ctx, further[:f.deaths], backend.Refuse)
	if err == nil {
		f.silent, errSilent = b.die(ctx, further[:f.deaths], backend.Silent)
	}
	return errors.Join(err, errSilent)
}

// die has backends die one after the other, faster than they are found out, and then live again.
func (b *bench) die(ctx context.Context, workers []*pair.Worker, how backend.Mode) ([]sample, error) {
	const apart = 97 * time.Millisecond // of no common measure with the interval of probes
	var mu sync.Mutex
	died := map[string]time.Time{}
	dying, alive := errgroup.WithContext(ctx)
	dying.Go(func() error {
		for _, w := range workers {
			select {
			case <-alive.Done():
				return alive.Err()
			case <-time.After(apart):
			}
			mu.Lock()
			died[w.Address.String()] = time.Now()
			mu.Unlock()
			if err := w.Set(how); err != nil {
				return err
			}
		}
		return nil
	})
	var out []sample
	_, err := b.sight.until(ctx, 1, func(slice *discoveryv1.EndpointSlice) bool {
		at := time.Now()
		mu.Lock()
		defer mu.Unlock()
		for address, since := range died {
			if isUnready(slice, address) {
				out = append(out, sample{since, at})
				delete(died, address)
			}
		}
		return len(out) == len(workers)
	})
	if err := errors.Join(err, dying.Wait()); err != nil {
		return nil, fmt.Errorf("%d of %d backends that died (%s) are out: %w", len(out), len(workers), how, err)
	}
	for _, w := range workers {
		if err := w.Set(backend.Serve); err != nil {
			return nil, err
		}
	}
	return out, b.until(ctx, workers, isReady)
}
