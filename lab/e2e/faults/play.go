package faults

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// takeover is the longest that nobody writes when a leader dies; docs/high-availability.md has the sum.
const takeover = 17 * time.Second

// warmUp is how long the load runs before the fault: each lane has its connection by then.
const warmUp = 600 * time.Millisecond

// Play plays a row on an undisturbed scene, and says what became of it. The error is for rows that
// could not be played to the end, or broke a bound; the result is told all the same.
func (s *Scene) Play(ctx context.Context, row Row) (Result, error) {
	r := Result{
		Name: row.Name, Part: row.Part, Meanwhile: row.Meanwhile.Name, Explain: row.Explain,
		WithinMS: row.Within.Milliseconds(), ThroughMS: row.Through.Milliseconds(), MostWrites: row.Writes + row.Meanwhile.Writes,
		AfterLiftMS: -1, AfterChangeMS: -1,
	}
	p := &play{scene: s, row: row, load: &load{slices: s.Now, name: func(a netip.Addr) string { return s.Pair.Truth(a).Name }}}
	if err := p.begin(ctx); err != nil {
		return r, err
	}
	err := p.act(ctx, &r)
	return r, errors.Join(err, p.end(ctx, &r))
}

// play is a row that is being played.
type play struct {
	scene *Scene
	row   Row
	load  *load

	stop   context.CancelFunc // the load, and what measures
	over   chan struct{}
	memory *memory
	late   *lateness
	writes int // before

	applied, changed, lifted time.Time
}

func (p *play) begin(ctx context.Context) error {
	var err error
	if p.writes, err = p.scene.written(ctx); err != nil {
		return err
	}
	p.memory, p.late = measure(p.scene), watchTheClock()
	running, stop := context.WithCancel(ctx)
	p.stop, p.over = stop, make(chan struct{})
	go func() { // end waits for it
		defer close(p.over)
		p.load.run(running)
	}()
	wait(ctx, warmUp)
	return nil
}

// act applies, changes, lifts, and waits for the truth.
func (p *play) act(ctx context.Context, r *Result) error {
	s, row := p.scene, p.row
	p.applied = time.Now()
	lift, err := row.Fault(ctx, s)
	if err != nil {
		p.lifted = time.Now()
		return fmt.Errorf("apply: %w", err)
	}
	p.changed = time.Now()
	if row.Meanwhile.make != nil {
		err = row.Meanwhile.make(ctx, s)
	}
	done := time.Now()
	var through error
	if row.Meanwhile.steps {
		p.changed = done
	}
	if err == nil && row.Through > 0 {
		var took time.Duration
		took, through = p.truth(ctx, p.changed, done.Add(row.Through+maxAllowance).Sub(p.changed))
		if allowed := done.Add(row.Through).Sub(p.changed) + allowance(p.late.sofar()); through == nil && took > allowed {
			through = fmt.Errorf("the truth came %s after the change, %s are allowed", took.Round(time.Millisecond), allowed.Round(time.Millisecond))
		}
		if through == nil {
			r.AfterChangeMS = took.Milliseconds()
		} else {
			through = fmt.Errorf("while the fault lasted: %w", through)
		}
	}
	wait(ctx, time.Until(done.Add(row.lasts())))
	p.lifted = time.Now()
	if failed := lift(ctx); failed != nil {
		return errors.Join(err, through, fmt.Errorf("lift: %w", failed))
	}
	p.lifted = time.Now()
	if err != nil {
		return fmt.Errorf("change: %w", err)
	}
	// Longer than the row may take, since by how much it breaks the bound is worth knowing.
	took, err := p.truth(ctx, p.lifted, row.Within+30*time.Second)
	if err != nil {
		return errors.Join(through, fmt.Errorf("after the lift: %w", err))
	}
	r.AfterLiftMS = took.Milliseconds()
	if allowed := row.Within + allowance(p.late.sofar()); took > allowed {
		err = fmt.Errorf("the truth came %s after the lift, %s are allowed", took.Round(time.Millisecond), allowed.Round(time.Millisecond))
	}
	return errors.Join(through, err)
}

func (p *play) truth(ctx context.Context, since time.Time, within time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within-time.Since(since), fmt.Errorf("not within %s", within))
	defer cancel()
	return p.scene.WaitTruth(ctx, since)
}

// end stops the load and counts.
func (p *play) end(ctx context.Context, r *Result) error {
	wait(ctx, pace) // whoever met the last fault tries once more
	p.stop()
	<-p.over
	r.InventoryMiB, r.WriterMiB = p.memory.stop()
	late := p.late.stop()
	r.LateMS = late.Milliseconds()
	r.Requests = int(p.load.requests.Load())
	v := verdicts{truth: p.scene.Pair.Truth, lives: p.scene.anyLived, allowance: allowance(late)}
	if p.row.Blind {
		v.blindFrom, v.blindTo = p.applied, p.lifted.Add(p.row.Recovers)
	}
	var examples []string
	r.Lost, examples = v.judge(p.load.lost)
	after, err := p.scene.written(ctx)
	if err != nil {
		return err
	}
	r.Writes = after - p.writes
	return broken(*r, examples)
}

// broken is which bounds a row broke, apart from its time.
func broken(r Result, examples []string) error {
	var errs []error
	if r.Writes > r.MostWrites {
		errs = append(errs, fmt.Errorf("%d API writes on slices, %d are allowed", r.Writes, r.MostWrites))
	}
	if r.Lost.Wrong > 0 && r.Explain == "" || r.Lost.Other > 0 {
		errs = append(errs, fmt.Errorf("%d requests lost to a wrong slice, %d to nobody knows what: %q", r.Lost.Wrong, r.Lost.Other, examples))
	}
	if r.Requests == 0 {
		errs = append(errs, errors.New("no request was sent, so none could be lost"))
	}
	if len(errs) > 0 && r.LateMS > 100 {
		errs = append(errs, fmt.Errorf("this machine's timers were late by %d ms", r.LateMS))
	}
	return errors.Join(errs...)
}

// written is how many writes of slices by the writers have been done.
func (s *Scene) written(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("not within 20s"))
	defer cancel()
	all, err := s.Writes(ctx)
	n := 0
	for _, w := range all {
		if w.Code < 300 {
			n++
		}
	}
	return n, err
}

// anyLived reports whether a backend of a member answered then.
func (s *Scene) anyLived(then time.Time) bool {
	for _, m := range s.members {
		lived := !m.gone
		for _, death := range s.Pair.Truth(m.Address).Deaths {
			if death.From.Before(then) && (death.To.IsZero() || death.To.After(then)) {
				lived = false
			}
		}
		if lived {
			return true
		}
	}
	return false
}

// wait lets time pass: how long a fault lasts is a part of it.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
