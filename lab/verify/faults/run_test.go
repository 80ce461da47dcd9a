package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair/client"
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
	lost          client.Tally
	correctAfter  time.Duration // after the end of the fault
	correctDuring time.Duration // after the change, during the fault; -1: not required
	writes        int
	lag           time.Duration // how late the machine's timers were at most
}

// runRow runs a row on an undisturbed environment.
func runRow(t *testing.T, e *env, row row) {
	ctx := t.Context()
	r := &run{env: e, t: t, ctx: ctx}
	f := figures{correctDuring: -1}
	writesBefore, err := e.sliceWrites(ctx)
	r.must(err)
	late, traffic := startLateness(), startTraffic(ctx, e)
	defer func() { // after a Fatal; otherwise all of it is over already
		if err := r.endFault(); err != nil {
			t.Errorf("end the fault: %v", err)
		}
		traffic.stop()
		late.stop()
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
		f.correctDuring = r.awaitCorrect("after the change, during the fault", changed, done.Add(row.correctDuring).Sub(changed), late)
	}
	wait(ctx, time.Until(done.Add(cmp.Or(row.lasts, 2*time.Second))))
	r.must(r.endFault())
	ended := time.Now()
	f.correctAfter = r.awaitCorrect("after the end of the fault", ended, row.correctAfter, late)

	wait(ctx, requestInterval) // every lane tries once more
	failed := traffic.stop()
	f.requests = int(traffic.requests.Load())
	f.lag = late.stop()
	writesAfter, err := e.sliceWrites(ctx)
	r.must(err)
	f.writes = writesAfter - writesBefore
	j := client.Judge{Truth: e.Truth, AnyAlive: e.anyAlive, Allowance: allowance(f.lag)}
	if row.noWrites {
		j.NoWritesFrom, j.NoWritesTo = injected, ended.Add(row.takeover)
	}
	f.lost = j.Count(failed)
	if err := f.brokenBounds(row); err != nil {
		t.Errorf("%v; examples of lost requests: %q; timers were late by %s", err, f.lost.Examples, f.lag)
	}
	t.Logf("%+v", f)
	if !t.Failed() {
		t.Attr(tableRowAttr, row.tableRow(f))
	}
}

// awaitCorrect waits until the slices are correct, and fails the row if that takes longer than allowed. It waits longer
// than that, since it is useful to know by how much a bound is broken.
func (r *run) awaitCorrect(when string, since time.Time, allowed time.Duration, late *lateness) time.Duration {
	r.t.Helper()
	ctx, cancel := context.WithDeadline(r.ctx, since.Add(allowed+30*time.Second))
	defer cancel()
	took, err := r.waitCorrect(ctx, since)
	if err != nil {
		r.t.Fatalf("%s: %v", when, err)
	}
	if allowed += allowance(late.most()); took > allowed {
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
	if f.lost.Wrong > 0 && row.whyLost == "" {
		errs = append(errs, fmt.Errorf("%d requests were lost to a wrong slice", f.lost.Wrong))
	}
	if f.lost.Other > 0 {
		errs = append(errs, fmt.Errorf("%d requests were lost for an unknown reason", f.lost.Other))
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

func TestBrokenBoundFailsItsRow(t *testing.T) {
	for _, c := range []struct {
		name    string
		figures figures
		whyLost string
		want    string // empty: none is broken
	}{
		{name: "within all bounds", figures: figures{requests: 100, writes: 2, lost: client.Tally{JustDied: 3}}},
		{name: "lost to a wrong slice", figures: figures{requests: 100, lost: client.Tally{Wrong: 1}}, want: "1 requests were lost to a wrong slice"},
		{name: "lost to a wrong slice, with a reason", figures: figures{requests: 100, lost: client.Tally{Wrong: 1}}, whyLost: "a reason"},
		{name: "lost for an unknown reason", figures: figures{requests: 100, lost: client.Tally{Other: 1}}, whyLost: "a reason", want: "for an unknown reason"},
		{name: "too many writes", figures: figures{requests: 100, writes: 3}, want: "3 writes of slices, want 2 at most"},
		{name: "no request", want: "no request was sent"},
		{name: "a slow machine excuses no loss", figures: figures{requests: 100, lost: client.Tally{Wrong: 1}, lag: 5 * time.Second}, want: "lost to a wrong slice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.figures.brokenBounds(row{during: change{writes: 1}, extraWrites: 1, whyLost: c.whyLost})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
