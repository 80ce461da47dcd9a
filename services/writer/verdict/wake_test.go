package verdict

import (
	"testing"
	"time"
)

func TestDecidesAgainOnlyIfThatCanChangeSomething(t *testing.T) {
	const confirms, ends = emptyGap, DefaultMaxStaleness + 1 // after the last observation, and after the last synced membership
	for _, tt := range []struct {
		name string
		past func(*world)  // of a source that has two endpoints, without probes
		wake time.Duration // after now; 0: not at all
	}{
		{"at rest", func(*world) {}, ends},
		{"a link that is down", func(w *world) { w.source("blue").Connected = false }, 0},
		{"a source that was never anything", func(w *world) { w.in.Current = nil; w.looksEmpty(1) }, confirms},
		{"a source that is empty", func(w *world) { w.looksEmpty(1) }, confirms},
		{"a source whose next observation may count by now", func(w *world) { w.looksEmpty(1); w.pass(time.Minute) }, ends},
		{"a source whose emptiness is confirmed", func(w *world) { w.looksEmpty(3) }, ends},
		{"a source that is empty again", func(w *world) {
			w.looksEmpty(1)
			w.report("blue", 0, Ready)
			w.decide()
			w.unlist("blue", 0)
		}, ends},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.in.Limits.Probing = false
			w.decide()
			tt.past(w)
			w.decide()
			want := time.Time{}
			if tt.wake > 0 {
				want = w.now.Add(tt.wake)
			}
			if !w.d.Wake.Equal(want) {
				t.Errorf("wakes after %s, want %s", w.d.Wake.Sub(w.now), tt.wake)
			}
		})
	}
}

// looksEmpty makes so many observations that find nothing.
func (w *world) looksEmpty(times int) {
	w.unlist("blue", 0)
	w.unlist("blue", 1)
	for range times {
		w.pass(emptyGap)
		w.observe("blue")
		w.decide()
	}
}

func TestGuardCountsWhatItHolds(t *testing.T) {
	t.Run("panic: what fails and stays", func(t *testing.T) {
		w := newWorld(t, 1)
		w.fail(w.now, 0)
		w.see("it fails", "0:ready")
		if got := w.endpoint(addr(0)).Rule; got != RulePanic {
			t.Errorf("the rule is %s", got)
		}
	})
	t.Run("empty: what would be removed, though it is not ready", func(t *testing.T) {
		w := newWorld(t, 2)
		w.in.Limits.Probing = false
		w.in.Current[0].Conditions = Conditions{}
		w.unlist("blue", 0)
		w.unlist("blue", 1)
		w.see("none is listed", "0:out 1:ready")
		w.wantGuards("empty 2 blue")
	})
}

// A slice written by another client may have such conditions.
func TestReadyButNotServingCountsAsInUse(t *testing.T) {
	w := newWorld(t, 1)
	odd := Conditions{Ready: true}
	w.in.Current[0].Conditions = odd
	w.fail(w.now, 0)
	if w.decide(); w.endpoint(addr(0)).Conditions != odd || !w.d.Panic {
		t.Errorf("the last one, which fails, is not as it was: %+v", w.endpoint(addr(0)))
	}
}
