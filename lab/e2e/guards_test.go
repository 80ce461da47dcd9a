package e2e

import (
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestNoMoreThanHalfLeavesAtOnceAndNotTheLast(t *testing.T) {
	const window = 5 * time.Second
	s := enter(t, script{writer: map[string]string{"SHRINK_WINDOW": window.String()}})
	s.start()
	workers := s.join(4)
	writer := s.writers[0]

	s.step("of three that leave at once, none does in a new leader's first window, then two, then one", func(s *stage) {
		s.must(writer.Terminate(20 * time.Second))
		for _, w := range workers[1:] {
			s.must(w.Leave(s.ctx()))
		}
		begun := time.Now()
		s.must(writer.Start(s.ctx()))
		last := len(workers)
		for _, left := range []int{2, 1} {
			s.slices("fewer are left", func(all []*discoveryv1.EndpointSlice) bool { return len(pair.Conditions(all)) < last })
			since := time.Since(begun)
			s.t.Logf("%d are left after %s", left, since)
			if last = len(pair.Conditions(s.Now())); last != left {
				s.t.Fatalf("%d are left, want %d: %s", last, left, pair.Describe(s.Now()))
			}
			if since < window {
				s.t.Errorf("the window was over after %s", since)
			}
			begun = begun.Add(since)
		}
		s.slices("the one that stays is ready", pair.AreJust(pair.Ready, workers[0].Address))
		if note := s.event("ShrinkLimited").Note; !strings.Contains(note, "SHRINK_WINDOW") {
			s.t.Errorf("it says %q", note)
		}
	})

	both := []*pair.Worker{workers[0], s.join(1)[0]}
	s.step("when all drain at once, nothing changes", func(s *stage) {
		s.quiet(func() {
			s.must(s.Inventory.Kill()) // so that it tells both in one message
			for _, w := range both {
				s.must(w.Drain(s.ctx(), true))
			}
			s.must(s.Inventory.Start(s.ctx()))
			s.event("LastEndpointsKept")
			s.metric(writer, `slicefeed_writer_guard_held_endpoints{guard="floor",namespace="web",service="shop"}`, equals(2))
		})
		s.slices("both are ready", pair.AreJust(pair.Ready, addresses(both)...))
	})
	s.step("when another one serves, they drain, one after the other", func(s *stage) {
		third := s.join(1)[0]
		s.slices("both drain", pair.Are(pair.Draining, addresses(both)...))
		s.is(pair.Ready, third)
	})
}
