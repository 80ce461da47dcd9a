package faults

import (
	"context"
	"time"
)

// Change is what happens in a cluster while a fault lasts.
type Change struct {
	Name string // as the table says it
	// Writes is the most API writes on slices that it is worth: what the planner needs, and one more where
	// the two witnesses tell of it at different times.
	Writes int
	make   func(context.Context, *Scene) error
	steps  bool // it takes a while: what comes after it is counted from its end
}

// The changes. The zero Change is none.
var (
	Joins = Change{"a node joins", 1, func(ctx context.Context, s *Scene) error { return s.joins(ctx, Default) }, false}
	Dies  = Change{"a node dies", 2, func(ctx context.Context, s *Scene) error { return s.Die(ctx, s.Members(Default)[0]) }, false}
	// Drains: what drains goes on serving.
	Drains = Change{"a node drains", 1, func(ctx context.Context, s *Scene) error { return s.Drain(ctx, s.Members(Default)[1], true) }, false}
	Leaves = Change{"a Node is deleted", 1, func(ctx context.Context, s *Scene) error { return s.Leave(ctx, s.Members(Default)[2]) }, false}
	Rolls  = Change{"two nodes are replaced", 10, func(ctx context.Context, s *Scene) error { return s.rolls(ctx) }, true}

	SecondJoins = Change{"a node joins the other cluster", 1, func(ctx context.Context, s *Scene) error { return s.joins(ctx, Second) }, false}
	SecondDies  = Change{"a node of the other cluster dies", 2, func(ctx context.Context, s *Scene) error { return s.Die(ctx, s.Members(Second)[0]) }, false}
)

func (s *Scene) joins(ctx context.Context, source Source) error {
	m, err := s.Hire(source)
	if err != nil {
		return err
	}
	return s.Join(ctx, m)
}

// rolls replaces two nodes as the cloud does it: a new one joins, and has a while to be listed; the
// old one drains, leaves, and its machine is gone a moment later, whether the slices know or not.
func (s *Scene) rolls(ctx context.Context) error {
	for _, old := range s.Members(Default)[:2] {
		if err := s.replace(ctx, old); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scene) replace(ctx context.Context, old *Member) error {
	if err := s.joins(ctx, Default); err != nil {
		return err
	}
	s.grace(ctx, 1500*time.Millisecond)
	if err := s.Drain(ctx, old, true); err != nil {
		return err
	}
	s.grace(ctx, 500*time.Millisecond)
	if err := s.Leave(ctx, old); err != nil {
		return err
	}
	s.grace(ctx, 500*time.Millisecond)
	return s.retire(old)
}

// grace waits until the slices tell the truth, and no longer than d: who replaces nodes does not look.
func (s *Scene) grace(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	_, _ = s.WaitTruth(ctx, time.Now())
}
