package outages

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestTheConsumingClusterGoesAway(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	s.StartAll()
	workers := s.Join(2)
	inventory, writer := s.Inventory.PID(), s.Writers[0].PID()

	s.StopAPIServer(s.Consuming)
	s.Must(workers[0].Set(backend.Refuse))
	late := s.Machine(pair.WorkerOptions{})
	s.Must(late.Join(s.Ctx()))
	s.AwaitMetric(s.Writers[0], e2e.SourceMembers, e2e.Equals(3))
	s.Must(s.Writers[0].Check(s.Ctx(), "/livez"))
	s.Must(s.Consuming.StartAPIServer(s.Ctx()))

	s.Await("what happened meanwhile is written", func(all []*discoveryv1.EndpointSlice) bool {
		return pair.Are(pair.Out, workers[0].Address)(all) && pair.Are(pair.Ready, workers[1].Address, late.Address)(all)
	})
	if s.Inventory.PID() != inventory || s.Writers[0].PID() != writer || !s.Inventory.Running() || !s.Writers[0].Running() {
		t.Error("a component did not survive it")
	}
}

// As in kubernetes#107457, kubernetes#118501 and etcd#14303: revisions go back. A watch that continues gets an error, is deaf,
// or misses what differs from before.
func TestAClusterIsRestoredFromABackup(t *testing.T) {
	for name, tc := range map[string]struct{ secured, passed bool }{
		"consuming": {}, "consuming, passed": {passed: true}, "secured": {secured: true}, "secured, passed": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := e2e.New(t, e2e.Options{Writer: map[string]string{"SHRINK_WINDOW": "0s"}})
			s.StartAll()
			t.Cleanup(func() { s.Must(s.WatchAgain(context.Background())) })
			plane, client, component := s.Consuming, s.ConsumingClient(), s.Writers[0]
			if tc.secured {
				plane, client, component = s.Secured, s.SecuredClient(), s.Inventory
			}
			// change changes what does not concern us, and returns the revision.
			change := func() int {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "change-"}}
				object, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(s.Ctx(), object, metav1.CreateOptions{})
				s.Must(err)
				revision, err := strconv.Atoi(object.ResourceVersion)
				s.Must(err)
				return revision
			}
			before := s.Join(2)
			restore, err := plane.Backup(s.Ctx())
			s.Must(err)
			after := s.Join(2)
			for _, worker := range before {
				s.Must(worker.Leave(s.Ctx()))
			}
			s.Await("the workers are replaced", pair.AreJust(pair.Ready, e2e.Addresses(after)...))
			for range 40 {
				change()
			}
			last := change()
			if tc.passed { // before the component knows
				s.Must(component.Signal(syscall.SIGSTOP))
			}
			s.Must(restore(s.Ctx()))
			if tc.passed {
				for change() < last+10 {
					continue
				}
				s.Must(component.Signal(syscall.SIGCONT))
			}

			exist := after // the consuming cluster has the slice of before, the secured one the Nodes of before
			if tc.secured {
				exist = before
			}
			s.Until("the slice lists the Nodes that exist", func() bool {
				all, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).List(s.Ctx(), metav1.ListOptions{})
				s.Must(err)
				var listed []*discoveryv1.EndpointSlice
				for i := range all.Items {
					listed = append(listed, &all.Items[i])
				}
				return pair.AreJust(pair.Ready, e2e.Addresses(exist)...)(listed)
			})
		})
	}
}

func TestTheInventoryGoesAway(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	s.StartAll()
	workers := s.Join(2)
	both := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	dies := func(s *e2e.Setup) {
		s.Must(workers[0].Set(backend.Refuse))
		s.Await("the dead backend is out", pair.Are(pair.Out, workers[0].Address))
		s.Expect(pair.Ready, workers[1])
		s.Must(workers[0].Set(backend.Serve))
		s.Await("and in again", both)
	}
	s.Step("killed, everything stays, and a dead backend goes out by its probe alone", func(s *e2e.Setup) {
		s.ExpectNoWrites(func() {
			s.Must(s.Inventory.Kill())
			s.AwaitMetric(s.Writers[0], e2e.SourceConnected, e2e.Equals(0))
			s.AwaitEvent("SourceNotTrusted")
		})
		dies(s)
	})
	s.Step("started again, it counts, and nothing is written", func(s *e2e.Setup) {
		s.ExpectNoWrites(func() {
			s.Must(s.Inventory.Start(s.Ctx()))
			back := time.Now()
			s.AwaitMetric(s.Writers[0], e2e.SourceSynced, e2e.Equals(1))
			if took := time.Since(back); took > 5*time.Second { // rule R14
				t.Errorf("the writer is synced %s after the inventory's return, want 5s at most", took)
			}
		})
	})
	s.Step("frozen, with its connections open, it is found out by its silence", func(s *e2e.Setup) {
		s.ExpectNoWrites(func() {
			s.Must(s.Inventory.Signal(syscall.SIGSTOP))
			s.AwaitMetric(s.Writers[0], e2e.SourceConnected, e2e.Equals(0))
		})
		dies(s)
	})
	s.Step("thawed, it counts again", func(s *e2e.Setup) {
		s.Must(s.Inventory.Signal(syscall.SIGCONT))
		s.AwaitMetric(s.Writers[0], e2e.SourceSynced, e2e.Equals(1))
		s.Must(workers[0].Leave(s.Ctx()))
		s.Await("the feed is acted upon", pair.AreJust(pair.Ready, workers[1].Address))
	})
}

func TestEmptyInventoryCountsAfterThreeObservationsFourSecondsApart(t *testing.T) {
	s := e2e.New(t, e2e.Options{Writer: map[string]string{"HEALTH_CHECK_MODE": "off"}})
	s.StartAll()
	s.Join(2)
	s.With(s.Inventory, map[string]string{"NODE_SELECTOR": "pool=bleu"})
	s.Must(s.Inventory.Terminate(20 * time.Second))
	begun := time.Now()
	s.Must(s.Inventory.Start(s.Ctx()))
	s.AwaitEvent("SourceEmpty")
	took, err := s.WaitSlicesSince(s.Ctx(), begun, pair.AreJust(pair.Ready))
	s.Must(err)
	t.Logf("empty after %s", took)
	if took < 8*time.Second {
		t.Errorf("empty after %s, which is too soon for three observations 4 s apart", took)
	}
}

func TestACloudTokenExpiresAndIsReplaced(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	token := s.Inventory.Dir() + "/ionos-token"
	s.RestoreFiles(token)
	s.StartAll()
	workers := s.Join(2)
	inventory := s.Inventory.PID()
	s.ExpectNoWrites(func() {
		before := s.Cloud.SetToken("another-token")
		t.Cleanup(func() { s.Cloud.SetToken(before) })
		s.AwaitMetric(s.Inventory, e2e.PartSynced("addresses"), e2e.Equals(0))
		if list := s.ListNodes(s.OperatorConn()); list.GetStatus().GetAddresses().GetReason() == "" || len(list.GetNodes()) != 2 {
			t.Errorf("an operator gets %v", list)
		}
		s.WriteFile(token, "another-token\n")
		s.AwaitMetric(s.Inventory, e2e.PartSynced("addresses"), e2e.Equals(1))
	})
	s.Await("nothing is lost", pair.AreJust(pair.Ready, e2e.Addresses(workers)...))
	s.CatchUp()
	if s.Inventory.PID() != inventory {
		t.Error("it was restarted")
	}
}
