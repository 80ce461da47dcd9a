package control

import (
	"context"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Stepper is Controls without a goroutine and a timer: its owner says when a target decides
// anew, carries out the writes and tells how they ended. It exists for the simulation, which
// steps the very loop that Run runs.
type Stepper struct {
	controls  *Controls
	decisions map[targets.Key]verdict.Decision
	wakes     map[targets.Key]time.Time // as the last step said
}

// NewStepper makes a Stepper that has decided on nothing yet.
func NewStepper(cfg Config) *Stepper {
	return &Stepper{controls: New(cfg), decisions: map[targets.Key]verdict.Decision{}, wakes: map[targets.Key]time.Time{}}
}

// Step has a target decide, because something that its decision rests upon has changed. It
// returns a write to carry out, if one is due, and when to step again though nothing changes.
func (s *Stepper) Step(key targets.Key, now time.Time) (write func(context.Context) error, wake time.Time) {
	one := s.controls.running[key.String()]
	if one == nil {
		if !s.controls.targets.Get(key).Relevant {
			return nil, time.Time{}
		}
		one = s.controls.control(key, s)
		s.controls.running[key.String()] = one
	}
	one.due = true
	return s.turn(one, now)
}

// Wrote says how the write of a target has ended, and has the target decide anew if that may
// change anything.
func (s *Stepper) Wrote(key targets.Key, now time.Time, err error) (write func(context.Context) error, wake time.Time) {
	one := s.controls.running[key.String()]
	if one.wrote(err) {
		return nil, s.wakes[key]
	}
	return s.turn(one, now)
}

func (s *Stepper) turn(one *control, now time.Time) (write func(context.Context) error, wake time.Time) {
	write, wake = one.step(now)
	one.tell()
	select {
	case <-one.changed: // it has something to decide immediately
		wake = now
	default:
	}
	s.wakes[one.key] = wake
	if one.over {
		one.forget()
		delete(s.controls.running, one.key.String())
	}
	return write, wake
}

// StepDown releases the Lease if that is due and nothing is being written, and returns when to call it again
// although nothing changes.
func (s *Stepper) StepDown(now time.Time) (wake time.Time) {
	for _, one := range s.controls.running {
		if one.writing {
			return time.Time{} // its end is a change
		}
	}
	release, wake := s.controls.maybeStepDown(now)
	if release != nil {
		release()
	}
	return wake
}

// Decision is the last one on a target; the zero decision: there is none.
func (s *Stepper) Decision(key targets.Key) verdict.Decision { return s.decisions[key] }

func (s *Stepper) onDecision(key targets.Key, d verdict.Decision) {
	s.decisions[key] = d
	s.controls.onDecision(key, d)
}

func (s *Stepper) wakeUp() {}
