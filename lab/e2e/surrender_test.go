package e2e

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// blind is how long a leader sees nothing pass before it gives its Lease up.
const blind = 30 * time.Second

func TestALeaderThatCannotReachTheBackendsGivesItsLeaseUpOnce(t *testing.T) {
	s := enter(t, script{writers: 2})
	host := s.settle()
	s.start()
	workers := s.join(3)
	first, second := s.writers[0], s.writers[1]
	serve := pair.AreJust(pair.Ready, addresses(workers)...)

	s.step("the leader alone is cut off from all backends", func(s *stage) {
		s.warm(second)
		before := s.writes()
		s.must(host[first].Cut(backendsLAN))
		s.event("AllProbesFailing")
		s.slices("all serve", serve)
		s.t.Logf("%d writes until then", s.writes()-before)

		begun := time.Now()
		s.quiet(func() {
			s.metric(second, leads, equals(1))
			took := time.Since(begun)
			s.t.Logf("the other leads %s after the panic began", took)
			if took < blind-pair.SilenceBound || took > blind+pair.SilenceBound+hurried {
				s.t.Errorf("that should be some %s", blind)
			}
		})
		s.slices("all serve", serve)
		if s.leading(first) {
			s.t.Error("both lead")
		}
		before = s.writes()
		s.must(workers[0].Set(backend.Refuse))
		s.slices("a dead backend is out", pair.Are(pair.Out, workers[0].Address))
		s.must(workers[0].Set(backend.Serve))
		s.slices("and in again", serve)
		s.alone(second, 2, before)
	})
	s.step("the one that took over is cut off from all backends too", func(s *stage) {
		long(s.t)
		s.must(host[second].Cut(backendsLAN))
		s.metric(first, leads, equals(1))
		s.slices("all serve", serve)
		s.quiet(func() {
			kept, since := s.holder(), time.Now()
			s.until("it would have been given up again", func() bool { return time.Since(since) > blind+takeover })
			if now := s.holder(); now != kept {
				s.t.Errorf("the Lease went on from %s to %s", kept, now)
			}
		})
		s.must(host[first].Mend(backendsLAN))
		before := s.writes()
		s.must(workers[0].Set(backend.Refuse))
		s.slices("a dead backend is out", pair.Are(pair.Out, workers[0].Address))
		s.alone(first, 1, before)
	})
}
