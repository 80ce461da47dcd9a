package targets

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/process"
)

// startHostnameExample starts the program of services/endpointslices/README.md. The host is an address, which resolves to itself.
func startHostnameExample(s *e2e.Setup, host netip.Addr) *process.Process {
	s.T.Helper()
	root, err := pair.Root()
	s.Must(err)
	p, err := process.Start(process.Spec{
		Name: "hostname", Path: filepath.Join(root, ".bin", "hostname"), Log: filepath.Join(s.T.TempDir(), "hostname.log"),
		Args: []string{
			"-host", host.String(), "-service", pair.Namespace + "/" + pair.Service, "-interval", "200ms",
			"-kubeconfig", s.Consuming.AdminKubeconfig(),
		},
	})
	s.Must(err)
	s.T.Cleanup(func() {
		if s.T.Failed() {
			s.T.Log(p.Tail())
		}
		if err := p.Stop(5 * time.Second); err != nil {
			s.T.Error(err)
		}
	})
	return p
}

func TestTheHostnameExampleFollowsAnAddressAndRepairsItsSlice(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	first, second := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.20")
	slices := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace)
	p := startHostnameExample(s, first)
	s.Await("the address is listed", pair.AreJust(pair.Ready, first))
	written := s.GetSlice(pair.Service + "-hostname")
	if port := written.Ports[0]; *port.Name != "http" || *port.Port != pair.NodePort {
		t.Errorf("port %s %d, want the Service's", *port.Name, *port.Port)
	}
	if owners := written.OwnerReferences; len(owners) != 1 || owners[0].UID != s.Service.UID {
		t.Errorf("owners %v, want the Service alone", owners)
	}

	edited := written.DeepCopy()
	edited.Endpoints[0].Conditions.Ready = new(false)
	_, err := slices.Update(s.Ctx(), edited, metav1.UpdateOptions{})
	s.Must(err)
	s.Await("the edit of another client is seen", func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 1 && all[0].Generation > edited.Generation
	})
	s.Await("the edit is repaired", pair.AreJust(pair.Ready, first))
	s.Must(slices.Delete(s.Ctx(), written.Name, metav1.DeleteOptions{}))
	s.Await("the deleted slice is created again", func(all []*discoveryv1.EndpointSlice) bool {
		return len(all) == 1 && all[0].UID != written.UID && pair.AreJust(pair.Ready, first)(all)
	})

	s.Must(p.Stop(5 * time.Second))
	before := s.GetSlice(written.Name)
	startHostnameExample(s, second)
	s.Await("the slice follows the address", pair.AreJust(pair.Ready, second))
	if after := s.GetSlice(written.Name); after.UID != before.UID || after.Generation != before.Generation+1 {
		t.Errorf("generation %d of slice %s after generation %d of slice %s, want one update of the same slice",
			after.Generation, after.UID, before.Generation, before.UID)
	}
}
