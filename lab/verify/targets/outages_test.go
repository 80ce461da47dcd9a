package targets

import (
	"testing"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestTheSecuredClusterGoesAway(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	s.StartAll()
	workers := s.Join(2)
	s.ExpectNoWrites(func() {
		s.StopAPIServer(s.Secured)
		s.AwaitMetric(s.Inventory, e2e.PartSynced("membership"), e2e.Equals(0))
		s.AwaitMetric(s.Writers[0], `slicefeed_writer_source_membership_synced{source="default"}`, e2e.Equals(0))
		if list := s.ListNodes(s.OperatorConn()); list.GetStatus().GetMembership().GetReason() == "" || len(list.GetNodes()) != 2 {
			t.Errorf("an operator is told %v", list)
		}
		s.AwaitEvent("SourceNotTrusted")
	})
	s.Step("it comes back", func(s *e2e.Setup) {
		s.Must(s.Secured.StartAPIServer(s.Ctx()))
		s.AwaitMetric(s.Inventory, e2e.PartSynced("membership"), e2e.Equals(1))
		s.AwaitMetric(s.Writers[0], `slicefeed_writer_source_membership_synced{source="default"}`, e2e.Equals(1))
		s.Must(workers[0].Leave(s.Ctx()))
		s.Await("the feed is acted upon", pair.AreJust(pair.Ready, workers[1].Address))
	})
}
