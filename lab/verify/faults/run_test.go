package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// takeover is how long no writer writes when a leader dies; docs/design/high-availability.md has the sum.
const takeover = 17 * time.Second

// warmUp is how long the client sends requests before the fault: each lane has its connection by then.
const warmUp = 600 * time.Millisecond

// run is one row while it runs.
type run struct {
	*env

	t    *testing.T
	ctx  context.Context
	undo []func(context.Context) error
}

// fault injects a fault. What ends it is registered with run.onEnd.
type fault func(*run)

// onEnd registers what undoes a part of the fault. The last one registered comes first.
func (r *run) onEnd(undo func(context.Context) error) { r.undo = append(r.undo, undo) }

func (r *run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// repeat does something again and again until the fault ends.
func (r *run) repeat(do func(context.Context) error) {
	ctx, stop := context.WithCancel(r.ctx)
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = do(ctx)
		}
		if ctx.Err() != nil {
			err = nil // the end of the fault interrupted it
		}
		done <- err
	}()
	r.onEnd(func(context.Context) error {
		stop()
		return <-done
	})
}

// endFault undoes everything.
func (r *run) endFault() error {
	var errs []error
	for _, undo := range slices.Backward(r.undo) {
		errs = append(errs, undo(r.ctx))
	}
	r.undo = nil
	return errors.Join(errs...)
}

// figures are what was measured of a row.
type figures struct {
	requests      int
	lost          lost
	correctAfter  time.Duration // after the end of the fault
	correctDuring time.Duration // after the change, during the fault; -1: not required
	writes        int
	inventoryMiB  int // the highest peak of a process
	writerMiB     int
	lag           time.Duration // how late the machine's timers were at most
}

// runRow runs a row on an undisturbed environment.
func runRow(t *testing.T, e *env, row row) {
	ctx := t.Context()
	r := &run{env: e, t: t, ctx: ctx}
	f := figures{correctDuring: -1}
	writesBefore, err := e.sliceWrites(ctx)
	r.must(err)
	meters, traffic := startMeters(e), startTraffic(ctx, e)
	defer func() { // after a Fatal; otherwise all of it is over already
		if err := r.endFault(); err != nil {
			t.Errorf("end the fault: %v", err)
		}
		traffic.stop()
		meters.stop()
	}()
	wait(ctx, warmUp)

	injected := time.Now()
	row.inject(r)
	changed := time.Now()
	if row.during.apply != nil {
		r.must(row.during.apply(ctx, e))
	}
	done := time.Now()
	if row.during.takesTime {
		changed = done
	}
	if row.correctDuring > 0 {
		f.correctDuring = r.awaitCorrect("after the change, during the fault", changed, done.Add(row.correctDuring).Sub(changed), meters)
	}
	wait(ctx, time.Until(done.Add(cmp.Or(row.lasts, 2*time.Second))))
	r.must(r.endFault())
	ended := time.Now()
	f.correctAfter = r.awaitCorrect("after the end of the fault", ended, row.correctAfter, meters)

	wait(ctx, requestInterval) // every lane tries once more
	failed := traffic.stop()
	f.requests = int(traffic.requests.Load())
	f.inventoryMiB, f.writerMiB, f.lag = meters.stop()
	writesAfter, err := e.sliceWrites(ctx)
	r.must(err)
	f.writes = writesAfter - writesBefore
	l := lossClassifier{truth: e.Truth, anyAlive: e.anyAlive, allowance: allowance(f.lag)}
	if row.noWrites {
		l.noWritesFrom, l.noWritesTo = injected, ended.Add(row.takeover)
	}
	var examples []string
	f.lost, examples = l.classify(failed)
	if err := f.brokenBounds(row); err != nil {
		t.Errorf("%v; examples of lost requests: %q; timers were late by %s", err, examples, f.lag)
	}
	t.Logf("%+v", f)
	if !t.Failed() {
		t.Attr(tableRowAttr, row.tableRow(f))
	}
}

// awaitCorrect waits until the slices are correct, and fails the row if that takes longer than allowed. It waits longer
// than that, since it is useful to know by how much a bound is broken.
func (r *run) awaitCorrect(when string, since time.Time, allowed time.Duration, m *meters) time.Duration {
	r.t.Helper()
	ctx, cancel := context.WithDeadline(r.ctx, since.Add(allowed+30*time.Second))
	defer cancel()
	took, err := r.waitCorrect(ctx, since)
	if err != nil {
		r.t.Fatalf("%s: %v", when, err)
	}
	if allowed += allowance(m.lag()); took > allowed {
		r.t.Errorf("the slices were correct %s %s, want %s at most", took.Round(time.Millisecond), when, allowed)
	}
	return took
}

// brokenBounds is apart from times, which awaitCorrect checks.
func (f figures) brokenBounds(row row) error {
	var errs []error
	if allowed := row.writes(); f.writes > allowed {
		errs = append(errs, fmt.Errorf("%d writes of slices, want %d at most", f.writes, allowed))
	}
	if f.lost.wrong > 0 && row.whyLost == "" {
		errs = append(errs, fmt.Errorf("%d requests were lost to a wrong slice", f.lost.wrong))
	}
	if f.lost.other > 0 {
		errs = append(errs, fmt.Errorf("%d requests were lost for an unknown reason", f.lost.other))
	}
	if f.requests == 0 {
		errs = append(errs, errors.New("no request was sent"))
	}
	return errors.Join(errs...)
}

// writes is how many writes of slices are allowed.
func (r row) writes() int { return r.extraWrites + r.during.writes }

// wait lets time pass: how long a fault lasts is a part of it.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
