package e2e

import (
	"fmt"
	"testing"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// grant gives the writers a view from the list of clients, and operators the whole.
func (s *stage) grant(view string) {
	s.t.Helper()
	s.write(s.Inventory.Dir()+"/clients.yaml", fmt.Sprintf(`clients:
- san: %s
  role: subscriber
  view: %s
- san: %s
  role: operator
`, pair.WriterSAN, view, pair.OperatorSAN))
}

func TestEachClientSeesItsOwnView(t *testing.T) {
	s := enter(t, script{})
	s.keep(s.Inventory.Dir() + "/clients.yaml")
	s.grant(`{nodeSelector: "pool=blue", labels: [pool]}`)
	s.start()
	blue := s.machine(pair.WorkerOptions{Labels: map[string]string{"pool": "blue", "secret": "x"}})
	red := s.machine(pair.WorkerOptions{Labels: map[string]string{"pool": "red"}})
	s.must(red.Join(s.ctx()))
	s.must(blue.Join(s.ctx()))
	s.slices("the blue node serves alone", pair.AreJust(pair.Ready, blue.Address))

	subscriber, operator := s.list(s.subscriber()), s.list(s.operator())
	if n := subscriber.GetNodes(); len(n) != 1 || n[0].GetName() != blue.Name || len(n[0].GetLabels()) != 1 ||
		n[0].GetLabels()["pool"] != "blue" {
		t.Errorf("the subscriber is told %v", n)
	}
	if len(operator.GetNodes()) != 2 || operator.GetNodes()[0].GetLabels() != nil {
		t.Errorf("the operator is told %v", operator.GetNodes())
	}
	if subscriber.GetCursor().GetEpoch() == operator.GetCursor().GetEpoch() ||
		string(subscriber.GetDigest()) == string(operator.GetDigest()) {
		t.Errorf("two views with one cursor or digest: %v, %v", subscriber.GetCursor(), operator.GetCursor())
	}

	s.step("a change outside of it does not touch it", func(s *stage) {
		s.quiet(func() {
			s.must(red.SetReady(s.ctx(), false))
			s.called("the operator is told", func() bool {
				list, err := inventoryv1.NewInventoryServiceClient(s.operator()).
					ListNodes(s.ctx(), &inventoryv1.ListNodesRequest{Names: []string{red.Name}})
				return err == nil && len(list.GetNodes()) == 1 &&
					list.GetNodes()[0].GetState() == inventoryv1.NodeState_NODE_STATE_NOT_READY
			})
		})
		if got := s.list(s.subscriber()).GetCursor().GetRevision(); got != subscriber.GetCursor().GetRevision() {
			s.t.Errorf("its revision went from %d to %d", subscriber.GetCursor().GetRevision(), got)
		}
	})
	s.step("it is altered while the stream lives", func(s *stage) {
		s.must(red.SetReady(s.ctx(), true))
		s.grant(`{labels: [pool]}`)
		s.slices("both serve", pair.AreJust(pair.Ready, blue.Address, red.Address))
	})
}
