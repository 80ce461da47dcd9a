package leader

import (
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestTheLeaderIsLost(t *testing.T) {
	s := e2e.New(t, e2e.Options{Writers: 2})
	host := s.IsolateWriters()
	s.StartAll()
	workers := s.Join(3)
	first, second := s.Writers[0], s.Writers[1]
	serve := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)

	s.Step("the leader is killed, and a backend dies with it", func(s *e2e.Setup) {
		s.AwaitStandby(second)
		before := s.WriteCount()
		s.Must(first.Kill())
		s.Must(workers[0].Set(backend.Refuse))
		s.Await("the next one writes", pair.Are(pair.Out, workers[0].Address))
		s.ExpectWritesOnlyBy(second, 1, before)
		s.Must(workers[0].Set(backend.Serve))
		s.Await("it serves again", serve)
		s.Must(first.Start(s.Ctx()))
	})
	s.Step("the leader is frozen, and resumed when another one leads", func(s *e2e.Setup) {
		s.AwaitStandby(first)
		before := s.WriteCount()
		s.ExpectNoWrites(func() {
			s.Must(second.Signal(syscall.SIGSTOP))
			s.AwaitMetric(first, e2e.Leads, e2e.Equals(1))
		})
		// What the frozen one would have to write, by all that it knows.
		s.Must(workers[0].Set(backend.Refuse))
		s.Must(workers[1].Leave(s.Ctx()))
		s.Await("the new leader writes", func(all []*discoveryv1.EndpointSlice) bool {
			return pair.Are(pair.Out, workers[0].Address)(all) && pair.Are(pair.Absent, workers[1].Address)(all)
		})
		s.Must(workers[0].Set(backend.Serve))
		s.Await("it serves again", pair.AreJust(pair.Ready, workers[0].Address, workers[2].Address))
		s.Must(second.Signal(syscall.SIGCONT))
		s.AwaitMetric(second, e2e.Leads, e2e.Equals(0))
		s.AwaitMetric(second, e2e.SourceMembers, e2e.Equals(2))
		s.Must(workers[1].Join(s.Ctx()))
		s.Await("all serve", serve)
		s.AwaitMetric(second, e2e.SourceMembers, e2e.Equals(3))
		s.AwaitStandby(second)
		s.ExpectNoWritesBy(second, before)
	})
	s.Step("the leader is cut off from the API server, and reaches it again", func(s *e2e.Setup) {
		before := s.WriteCount()
		s.Must(host[first].Cut(e2e.Only(pair.ConsumingAddress)))
		s.Must(workers[0].Set(backend.Refuse))
		s.AwaitMetric(second, e2e.Leads, e2e.Equals(1))
		if s.IsLeading(first) {
			s.T.Error("both lead")
		}
		s.Await("the new leader writes", pair.Are(pair.Out, workers[0].Address))
		s.ExpectWritesOnlyBy(second, 1, before)

		before = s.WriteCount()
		s.Must(workers[0].Set(backend.Serve))
		s.Await("it serves again", serve)
		s.Must(host[first].Mend(e2e.Only(pair.ConsumingAddress)))
		s.AwaitStandby(first)
		s.Must(workers[2].Leave(s.Ctx()))
		s.Await("it is gone", pair.Are(pair.Absent, workers[2].Address))
		s.Must(workers[2].Join(s.Ctx()))
		s.Await("it serves again", serve)
		s.AwaitMetric(first, e2e.SourceMembers, e2e.Equals(3))
		s.AwaitStandby(first)
		// What it had sent before it was cut off may arrive now, or in the next seconds. It fails: the
		// slice is another one, or the server sees that the client is gone.
		s.ExpectWritesOnlyBy(second, 3, before)
		if !s.IsLeading(second) {
			s.T.Error("the new leader has lost the Lease to it")
		}
	})
	s.Step("the leader is cut off from the inventory", func(s *e2e.Setup) {
		before := s.WriteCount()
		s.Must(host[second].Cut(e2e.Only(pair.InventoryAddress)))
		s.AwaitMetric(second, e2e.SourceConnected, e2e.Equals(0))
		s.ExpectWritesOnlyBy(second, 0, before)
		s.Must(workers[1].Leave(s.Ctx()))
		s.AwaitMetric(first, e2e.SourceMembers, e2e.Equals(2))
		s.Must(workers[0].Set(backend.Refuse))
		s.Await("a dead backend is out", pair.Are(pair.Out, workers[0].Address))
		s.Must(workers[0].Set(backend.Serve))
		s.Await("what only the standby received is not written", pair.AreJust(pair.Ready, e2e.Addresses(workers)...))
		s.ExpectWritesOnlyBy(second, 2, before)
		s.Must(host[second].Mend(e2e.Only(pair.InventoryAddress)))
		s.Await("the feed is acted upon again", pair.AreJust(pair.Ready, workers[0].Address, workers[2].Address))
		s.ExpectWritesOnlyBy(second, 3, before)
	})
	s.Step("the leader is terminated", func(s *e2e.Setup) {
		s.AwaitStandby(first)
		s.ExpectNoWrites(func() {
			s.Must(second.Terminate(20 * time.Second))
			s.AwaitMetric(first, e2e.Leads, e2e.Equals(1))
			s.Must(second.Start(s.Ctx()))
		})
	})
	s.Step("the Lease is deleted by hand", func(s *e2e.Setup) {
		s.AwaitStandby(second)
		s.ExpectNoWrites(func() {
			s.Must(s.ConsumingClient().CoordinationV1().Leases(pair.Namespace).Delete(s.Ctx(), e2e.LeaseName, metav1.DeleteOptions{}))
			s.Until("one leads, and not the other", func() bool { return s.IsLeading(first) != s.IsLeading(second) && s.Leader() != "" })
		})
		before := s.WriteCount()
		s.Must(workers[0].Set(backend.Refuse))
		s.Await("it writes", pair.Are(pair.Out, workers[0].Address))
		if n := s.WriteCount() - before; n != 1 {
			s.T.Errorf("one change took %d writes", n)
		}
	})
}

func TestInitialSyncGuardOutlivesATakeover(t *testing.T) {
	s := e2e.New(t, e2e.Options{Writers: 2})
	s.IsolateWriters()
	first, second := s.Writers[0], s.Writers[1]
	s.Must(s.Inventory.Start(s.Ctx()))
	s.Must(first.Start(s.Ctx()))
	workers := s.Join(3)
	dead, deleted := workers[0], workers[1]
	serve := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)

	s.Step("a standby takes over that was never synced, while the inventory is away", func(s *e2e.Setup) {
		s.ExpectNoWrites(func() {
			s.Must(s.Inventory.Kill())
			s.Must(second.Start(s.Ctx()))
			s.Must(deleted.Leave(s.Ctx())) // no writer learns it
			begun := time.Now()
			s.Must(first.Terminate(20 * time.Second))
			s.AwaitMetric(second, e2e.Leads, e2e.Equals(1))
			s.T.Logf("it leads %s after the other was terminated", time.Since(begun))
			s.AwaitEvent("SourceNotSynced")
		})
		s.Await("all are as they were", serve)
		before := s.WriteCount()
		s.Must(dead.Set(backend.Refuse))
		s.Await("a backend that dies is out, by its probe alone", pair.Are(pair.Out, dead.Address))
		s.Must(dead.Set(backend.Serve))
		s.Await("and in again", serve)
		s.ExpectWritesOnlyBy(second, 2, before)
	})
	s.Step("the inventory comes back", func(s *e2e.Setup) {
		before := s.WriteCount()
		s.Must(s.Inventory.Start(s.Ctx()))
		s.Await("the deleted Node is gone", pair.AreJust(pair.Ready, dead.Address, workers[2].Address))
		s.ExpectWritesOnlyBy(second, 1, before)
	})
}
