package e2e

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/process"
)

// startHostnameExample starts the program of docs/use/planner.md. The host is an address, which resolves to itself.
func (s *stage) startHostnameExample(host netip.Addr) *process.Process {
	s.t.Helper()
	root, err := pair.Root()
	s.must(err)
	p, err := process.Start(process.Spec{
		Name: "hostname", Path: filepath.Join(root, ".bin", "hostname"), Log: filepath.Join(s.t.TempDir(), "hostname.log"),
		Args: []string{
			"-host", host.String(), "-service", pair.Namespace + "/" + pair.Service, "-interval", "200ms",
			"-kubeconfig", s.Consuming.AdminKubeconfig(),
		},
	})
	s.must(err)
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Log(p.Tail())
		}
		if err := p.Stop(5 * time.Second); err != nil {
			s.t.Error(err)
		}
	})
	return p
}

func TestTheHostnameExampleFollowsAnAddressAndRepairsItsSlice(t *testing.T) {
	s := enter(t, script{})
	first, second := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.20")
	slices := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace)
	p := s.startHostnameExample(first)
	s.slices("the address is listed", pair.AreJust(pair.Ready, first))
	written := s.get(pair.Service + "-hostname")
	if port := written.Ports[0]; *port.Name != "http" || *port.Port != pair.NodePort {
		t.Errorf("port %s %d, want the Service's", *port.Name, *port.Port)
	}
	if owners := written.OwnerReferences; len(owners) != 1 || owners[0].UID != s.service.UID {
		t.Errorf("owners %v, want the Service alone", owners)
	}

	edited := written.DeepCopy()
	edited.Endpoints[0].Conditions.Ready = new(false)
	_, err := slices.Update(s.ctx(), edited, metav1.UpdateOptions{})
	s.must(err)
	s.slices("the edit of another client is seen", func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 1 && all[0].Generation > edited.Generation
	})
	s.slices("the edit is repaired", pair.AreJust(pair.Ready, first))
	s.must(slices.Delete(s.ctx(), written.Name, metav1.DeleteOptions{}))
	s.slices("the deleted slice is created again", func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 1 && all[0].UID != written.UID && pair.AreJust(pair.Ready, first)(all)
	})

	s.must(p.Stop(5 * time.Second))
	before := s.get(written.Name)
	s.startHostnameExample(second)
	s.slices("the slice follows the address", pair.AreJust(pair.Ready, second))
	if after := s.get(written.Name); after.UID != before.UID || after.Generation != before.Generation+1 {
		t.Errorf("generation %d of slice %s after generation %d of slice %s, want one update of the same slice",
			after.Generation, after.UID, before.Generation, before.UID)
	}
}
