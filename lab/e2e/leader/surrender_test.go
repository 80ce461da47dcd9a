package leader

import (
	"net/netip"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// blind is how long a leader sees nothing pass before it gives its Lease up.
const blind = 30 * time.Second

func TestALeaderThatCannotReachTheBackendsGivesItsLeaseUpOnce(t *testing.T) {
	e2e.Long(t)
	backends := netip.MustParsePrefix(pair.Subnet)
	s := e2e.New(t, e2e.Options{Writers: 2})
	host := s.IsolateWriters()
	s.StartAll()
	workers := s.Join(3)
	first, second := s.Writers[0], s.Writers[1]
	serve := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)

	s.Step("the leader alone is cut off from all backends", func(s *e2e.Setup) {
		s.AwaitStandby(second)
		before := s.WriteCount()
		s.Must(host[first].Cut(backends))
		s.AwaitEvent("AllProbesFailing")
		s.Await("all serve", serve)
		s.T.Logf("%d writes until then", s.WriteCount()-before)

		begun := time.Now()
		s.ExpectNoWrites(func() {
			s.AwaitMetric(second, e2e.Leads, e2e.Equals(1))
			took := time.Since(begun)
			s.T.Logf("the other leads %s after the panic began", took)
			if took < blind-pair.SilenceBound {
				s.T.Errorf("that should be some %s", blind)
			}
		})
		s.Await("all serve", serve)
		if s.IsLeading(first) {
			s.T.Error("both lead")
		}
		before = s.WriteCount()
		s.Must(workers[0].Set(backend.Refuse))
		s.Await("a dead backend is out", pair.Are(pair.Out, workers[0].Address))
		s.Must(workers[0].Set(backend.Serve))
		s.Await("and in again", serve)
		s.ExpectWritesOnlyBy(second, 2, before)
	})
	s.Step("the one that took over is cut off from all backends too", func(s *e2e.Setup) {
		s.Must(host[second].Cut(backends))
		s.AwaitMetric(first, e2e.Leads, e2e.Equals(1))
		s.Await("all serve", serve)
		s.ExpectNoWrites(func() {
			kept, since := s.LeaseHolder(), time.Now()
			s.Until("it would have been given up again", func() bool { return time.Since(since) > blind+e2e.Takeover })
			if now := s.LeaseHolder(); now != kept {
				s.T.Errorf("the Lease went on from %s to %s", kept, now)
			}
		})
		s.Must(host[first].Mend(backends))
		before := s.WriteCount()
		s.Must(workers[0].Set(backend.Refuse))
		s.Await("a dead backend is out", pair.Are(pair.Out, workers[0].Address))
		s.ExpectWritesOnlyBy(first, 1, before)
	})
}
