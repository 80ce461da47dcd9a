package services

import (
	"net/netip"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestTheMainJob(t *testing.T) {
	s := e2e.New(t, e2e.Options{Inventory: map[string]string{
		"SECURED_SUBNET_CIDR": "10.0.0.0/16", // wider than the writer's allowlist
	}})
	s.StartAll()
	first := s.Machine(pair.WorkerOptions{})

	s.Step("a worker that joins is in the slice with its private address and port", func(s *e2e.Setup) {
		took, err := s.Propagation(s.Ctx(), first.Join, pair.AreJust(pair.Ready, first.Address))
		s.Must(err)
		s.T.Logf("%s after the Node", took)
		slice := s.Slice()
		if p := slice.Ports[0]; *p.Port != pair.NodePort || *p.Name != "http" {
			s.T.Errorf("the slice's port is %s %d", *p.Name, *p.Port)
		}
		if got := slice.OwnerReferences; len(got) != 1 || got[0].UID != s.Service.UID {
			s.T.Errorf("the slice's owners are %v, want the Service alone", got)
		}
		if got := slice.Labels[discoveryv1.LabelManagedBy]; got != "slicefeed-default" {
			s.T.Errorf("the slice is managed by %q", got)
		}
	})
	second := s.Join(1)[0]
	s.Step("a Node that is not ready stays while its backend answers", func(s *e2e.Setup) {
		s.Must(second.SetReady(s.Ctx(), false))
		third := s.CatchUp()
		s.Expect(pair.Ready, second)
		s.Must(third.Leave(s.Ctx()))
		s.Await("the third is gone", pair.Are(pair.Absent, third.Address))
		s.Expect(pair.Ready, second)
		s.Must(second.SetReady(s.Ctx(), true))
	})
	s.Step("a backend that dies is out, and in again when it answers", func(s *e2e.Setup) {
		s.Must(second.Set(backend.Refuse))
		s.T.Logf("out after %s", s.Await("the dead backend is out", pair.Are(pair.Out, second.Address)))
		s.Expect(pair.Ready, first)
		s.Must(second.Set(backend.Serve))
		s.Await("it serves again", pair.AreJust(pair.Ready, first.Address, second.Address))
	})
	s.Step("an address outside the allowlist is never written, and reported", func(s *e2e.Setup) {
		stray := s.Machine(pair.WorkerOptions{Address: netip.MustParseAddr("10.0.9.9"), Name: "stray"})
		s.Must(stray.Join(s.Ctx()))
		if note := s.AwaitEvent("AddressNotAllowed").Note; !strings.Contains(note, "10.0.9.9") {
			s.T.Errorf("the Event does not name the address: %s", note)
		}
		after := s.CatchUp()
		s.Await("the others serve, and it alone is not listed", pair.AreJust(pair.Ready, first.Address, second.Address, after.Address))
		if got := stray.Backend().Requests(); got != 0 {
			s.T.Errorf("it was asked %d times", got)
		}
		s.Must(after.Leave(s.Ctx()))
	})
	s.Step("a worker whose Node is deleted is gone", func(s *e2e.Setup) {
		took, err := s.Propagation(s.Ctx(), second.Leave, pair.AreJust(pair.Ready, first.Address))
		s.Must(err)
		s.T.Logf("%s after the deletion", took)
	})
}
