package e2e

import (
	"context"
	"syscall"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestTheConsumingClusterGoesAway(t *testing.T) {
	s := enter(t, script{})
	s.start()
	workers := s.join(2)
	inventory, writer := s.Inventory.PID(), s.writers[0].PID()

	s.stop(s.Consuming)
	s.must(workers[0].Set(backend.Refuse))
	late := s.machine(pair.WorkerOptions{})
	s.must(late.Join(s.ctx()))
	s.metric(s.writers[0], sourceMembers, equals(3))
	s.must(s.writers[0].Check(s.ctx(), "/livez"))
	s.must(s.Consuming.StartAPIServer(s.ctx()))

	s.slices("what happened meanwhile is written", func(all []*discoveryv1.EndpointSlice) bool {
		return pair.Are(pair.Out, workers[0].Address)(all) && pair.Are(pair.Ready, workers[1].Address, late.Address)(all)
	})
	if s.Inventory.PID() != inventory || s.writers[0].PID() != writer || !s.Inventory.Running() || !s.writers[0].Running() {
		t.Error("a half did not live through it")
	}
}

// stop kills a cluster's API server. When the test fails before it has started it again, the
// next test finds it all the same.
func (s *stage) stop(cluster *controlplane.ControlPlane) {
	s.t.Helper()
	s.must(cluster.StopAPIServer())
	s.t.Cleanup(func() {
		if s.t.Failed() {
			_ = cluster.StartAPIServer(context.Background()) // it may run already
		}
	})
}

func TestTheSecuredClusterGoesAway(t *testing.T) {
	s := enter(t, script{})
	s.start()
	workers := s.join(2)
	s.quiet(func() {
		s.stop(s.Secured)
		s.observe() // else it looks once a minute
		s.metric(s.Inventory, partSynced("membership"), equals(0))
		s.metric(s.writers[0], `slicefeed_writer_source_membership_synced{source="default"}`, equals(0))
		if list := s.list(s.operator()); list.GetStatus().GetMembership().GetReason() == "" || len(list.GetNodes()) != 2 {
			t.Errorf("an operator is told %v", list)
		}
		s.event("SourceNotTrusted")
	})
	s.step("it comes back", func(s *stage) {
		s.must(s.Secured.StartAPIServer(s.ctx()))
		s.metric(s.Inventory, partSynced("membership"), equals(1))
		s.metric(s.writers[0], `slicefeed_writer_source_membership_synced{source="default"}`, equals(1))
		s.must(workers[0].Leave(s.ctx()))
		s.slices("the feed is acted upon", pair.AreJust(pair.Ready, workers[1].Address))
	})
}

func TestTheInventoryGoesAway(t *testing.T) {
	s := enter(t, script{})
	s.start()
	workers := s.join(2)
	both := pair.AreJust(pair.Ready, addresses(workers)...)
	dies := func(s *stage) {
		s.must(workers[0].Set(backend.Refuse))
		s.slices("the dead backend is out", pair.Are(pair.Out, workers[0].Address))
		s.is(pair.Ready, workers[1])
		s.must(workers[0].Set(backend.Serve))
		s.slices("and in again", both)
	}
	s.step("killed, everything stays, and a dead backend goes out by its probe alone", func(s *stage) {
		s.quiet(func() {
			s.must(s.Inventory.Kill())
			s.metric(s.writers[0], sourceConnected, equals(0))
			s.event("SourceNotTrusted")
		})
		dies(s)
	})
	s.step("started again, it is believed, and nothing is written", func(s *stage) {
		s.quiet(func() {
			s.must(s.Inventory.Start(s.ctx()))
			back := time.Now()
			s.metric(s.writers[0], sourceSynced, equals(1))
			if took := time.Since(back); took > 5*time.Second { // rule R14
				t.Errorf("the writer is synced %s after the inventory's return, want 5s at most", took)
			}
		})
	})
	s.step("frozen, with its connections open, it is found out by its silence", func(s *stage) {
		s.quiet(func() {
			s.must(s.Inventory.Signal(syscall.SIGSTOP))
			s.metric(s.writers[0], sourceConnected, equals(0))
		})
		dies(s)
	})
	s.step("thawed, it is believed again", func(s *stage) {
		s.must(s.Inventory.Signal(syscall.SIGCONT))
		s.metric(s.writers[0], sourceSynced, equals(1))
		s.must(workers[0].Leave(s.ctx()))
		s.slices("the feed is acted upon", pair.AreJust(pair.Ready, workers[1].Address))
	})
}

func TestAnInventoryThatIsBlindIsNotBelieved(t *testing.T) {
	s := enter(t, script{writer: map[string]string{"HEALTH_CHECK_MODE": "off"}})
	s.start()
	workers := s.join(3)
	s.quiet(func() {
		s.must(s.Inventory.Kill())
		outage, err := s.Cloud.AddFault(ionosapi.Fault{Kind: ionosapi.Unavailable})
		s.must(err)
		s.must(s.Inventory.Launch())
		s.must(s.WaitSubscribed(s.ctx(), 1))
		s.until("it has said why it is not ready", func() bool {
			err := s.Inventory.Check(s.ctx(), "/readyz")
			return err != nil && containsAll(err.Error(), "addresses", "503")
		})
		if !s.Inventory.Running() {
			t.Error("it ended")
		}
		s.must(s.Cloud.RemoveFault(outage))
		s.must(s.Inventory.Ready(s.ctx()))
		s.metric(s.writers[0], sourceSynced, equals(1))
	})
	s.slices("nothing is lost", pair.AreJust(pair.Ready, addresses(workers)...))
}

func TestEmptyInventoryCountsAfterThreeObservationsFourSecondsApart(t *testing.T) {
	s := enter(t, script{writer: map[string]string{"HEALTH_CHECK_MODE": "off"}})
	s.start()
	s.join(2)
	s.with(s.Inventory, map[string]string{"NODE_SELECTOR": "pool=bleu"})
	s.must(s.Inventory.Terminate(20 * time.Second))
	begun := time.Now()
	s.must(s.Inventory.Start(s.ctx()))
	s.event("SourceEmpty")
	took, err := s.WaitSlicesSince(s.ctx(), begun, pair.AreJust(pair.Ready))
	s.must(err)
	t.Logf("empty after %s", took)
	if took < 8*time.Second {
		t.Errorf("empty after %s, which is too soon for three observations 4 s apart", took)
	}
}

func TestACloudTokenExpiresAndIsReplaced(t *testing.T) {
	s := enter(t, script{})
	token := s.Inventory.Dir() + "/ionos-token"
	s.keep(token)
	s.start()
	workers := s.join(2)
	inventory := s.Inventory.PID()
	s.quiet(func() {
		before := s.Cloud.SetToken("another-token")
		t.Cleanup(func() { s.Cloud.SetToken(before) })
		s.metric(s.Inventory, partSynced("addresses"), equals(0))
		if list := s.list(s.operator()); list.GetStatus().GetAddresses().GetReason() == "" || len(list.GetNodes()) != 2 {
			t.Errorf("an operator is told %v", list)
		}
		s.write(token, "another-token\n")
		s.metric(s.Inventory, partSynced("addresses"), equals(1))
	})
	s.slices("nothing is lost", pair.AreJust(pair.Ready, addresses(workers)...))
	s.told()
	if s.Inventory.PID() != inventory {
		t.Error("it was restarted")
	}
}
