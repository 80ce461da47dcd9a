package e2e

import (
	"net/netip"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestTheMainJob(t *testing.T) {
	s := enter(t, script{inventory: map[string]string{
		"SECURED_SUBNET_CIDR": "10.0.0.0/16", // wider than the writer's fence, so that it has something to refuse
	}})
	s.start()
	first := s.machine(pair.WorkerOptions{})

	s.step("a worker that joins is in the slice with its private address and port", func(s *stage) {
		took, err := s.Propagation(s.ctx(), first.Join, pair.AreJust(pair.Ready, first.Address))
		s.must(err)
		s.t.Logf("%s after the Node", took)
		slice := s.slice()
		if p := slice.Ports[0]; *p.Port != pair.NodePort || *p.Name != "http" {
			s.t.Errorf("the slice's port is %s %d", *p.Name, *p.Port)
		}
		if got := slice.OwnerReferences; len(got) != 1 || got[0].UID != s.service.UID {
			s.t.Errorf("the slice's owners are %v, want the Service alone", got)
		}
		if got := slice.Labels[discoveryv1.LabelManagedBy]; got != "slicefeed-default" {
			s.t.Errorf("the slice is managed by %q", got)
		}
	})
	second := s.join(1)[0]
	s.step("a Node that is not ready stays while its backend answers", func(s *stage) {
		s.must(second.SetReady(s.ctx(), false))
		third := s.told()
		s.is(pair.Ready, second)
		s.must(third.Leave(s.ctx()))
		s.slices("the third is gone", pair.Are(pair.Absent, third.Address))
		s.is(pair.Ready, second)
		s.must(second.SetReady(s.ctx(), true))
	})
	s.step("a backend that dies is out, and in again when it answers", func(s *stage) {
		s.must(second.Set(backend.Refuse))
		s.t.Logf("out after %s", s.slices("the dead backend is out", pair.Are(pair.Out, second.Address)))
		s.is(pair.Ready, first)
		s.must(second.Set(backend.Serve))
		s.slices("it serves again", pair.AreJust(pair.Ready, first.Address, second.Address))
	})
	s.step("an address outside of the fence is never written, and told", func(s *stage) {
		stray := s.machine(pair.WorkerOptions{Address: netip.MustParseAddr("10.0.9.9"), Name: "stray"})
		s.must(stray.Join(s.ctx()))
		if note := s.event("AddressNotAllowed").Note; !strings.Contains(note, "10.0.9.9") {
			s.t.Errorf("the Event does not name the address: %s", note)
		}
		after := s.told()
		s.slices("the others serve, and it alone is not listed", pair.AreJust(pair.Ready, first.Address, second.Address, after.Address))
		if got := stray.Backend().Requests(); got != 0 {
			s.t.Errorf("it was asked %d times", got)
		}
		s.must(after.Leave(s.ctx()))
	})
	s.step("a worker whose Node is deleted is gone", func(s *stage) {
		took, err := s.Propagation(s.ctx(), second.Leave, pair.AreJust(pair.Ready, first.Address))
		s.must(err)
		s.t.Logf("%s after the deletion", took)
	})
}
