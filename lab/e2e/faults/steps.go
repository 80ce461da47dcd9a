package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// steps are what lifts a fault that is applied in several.
type steps []func(context.Context) error

func (u *steps) then(undo func(context.Context) error) { *u = append(*u, undo) }

// lift undoes the latest first.
func (u *steps) lift(ctx context.Context) error {
	var errs []error
	for _, undo := range slices.Backward(*u) {
		errs = append(errs, undo(ctx))
	}
	return errors.Join(errs...)
}

// inSteps is a fault that notes after each step how to undo it.
func inSteps(apply func(context.Context, *Scene, *steps) error) Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		var undo steps
		if err := apply(ctx, s, &undo); err != nil {
			return nil, errors.Join(err, undo.lift(context.WithoutCancel(ctx)))
		}
		return undo.lift, nil
	}
}

// ongoing does something again and again until the lift, which waits for its end.
func (u *steps) ongoing(ctx context.Context, do func(context.Context) error) {
	ctx, stop := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = do(ctx)
		}
		if ctx.Err() != nil {
			err = nil // what it was doing when it was told to end
		}
		over <- err
	}()
	u.then(func(context.Context) error {
		stop()
		return <-over
	})
}

// who are the processes that a fault concerns.
type who func(context.Context, *Scene) ([]*pair.Half, error)

func theInventory(_ context.Context, s *Scene) ([]*pair.Half, error) {
	return []*pair.Half{s.Inventory}, nil
}

func theReplica(_ context.Context, s *Scene) ([]*pair.Half, error) {
	return []*pair.Half{s.Replica}, nil
}

func theSecond(_ context.Context, s *Scene) ([]*pair.Half, error) {
	return []*pair.Half{s.Second.Half}, nil
}

func theLeader(ctx context.Context, s *Scene) ([]*pair.Half, error) {
	leader, _, err := s.Leader(ctx)
	return []*pair.Half{leader}, err
}

func theStandby(ctx context.Context, s *Scene) ([]*pair.Half, error) {
	_, standby, err := s.Leader(ctx)
	return []*pair.Half{standby}, err
}

func bothWriters(_ context.Context, s *Scene) ([]*pair.Half, error) { return s.Writers, nil }

func these(all ...who) who {
	return func(ctx context.Context, s *Scene) ([]*pair.Half, error) {
		var halves []*pair.Half
		for _, some := range all {
			few, err := some(ctx, s)
			if err != nil {
				return nil, err
			}
			halves = append(halves, few...)
		}
		return halves, nil
	}
}

// eventually asks again and again: for what tells nobody when it changes.
func eventually(ctx context.Context, what string, yes func() bool) error {
	const within = 30 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %s", within))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// lines counts what a half has ever logged that has all these words in it.
func lines(half *pair.Half, words ...string) int {
	raw, err := os.ReadFile(half.Log())
	if err != nil {
		return 0
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			n++
		}
	}
	return n
}

// keep notes how to put files back as they are now.
func (u *steps) keep(files ...string) error {
	for _, file := range files {
		before, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		u.then(func(context.Context) error {
			if err := os.RemoveAll(file); err != nil {
				return err
			}
			return pki.WriteFile(file, before)
		})
	}
	return nil
}

// refresh starts those writers anew whose streams have ended since the last time: each end makes them
// wait longer before the next attempt, which nobody should inherit from another row.
func (s *Scene) refresh(ctx context.Context) error {
	var all errgroup.Group
	for _, writer := range s.Writers {
		ended := lines(writer, `"msg":"stream closed`)
		if ended == s.ended[writer] || !writer.Running() {
			continue
		}
		all.Go(func() error {
			if err := writer.Terminate(20 * time.Second); err != nil {
				return err
			}
			return writer.Start(ctx)
		})
	}
	err := all.Wait()
	for _, writer := range s.Writers {
		s.ended[writer] = lines(writer, `"msg":"stream closed`)
	}
	return err
}
