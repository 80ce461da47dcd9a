package targets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestOthersAndOurSlices(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	foreign := s.CreateSlice(e2e.NewSlice("somebody-elses", "somebody", netip.MustParseAddr("10.0.1.250")))
	s.StartAll()
	workers := s.Join(2)
	ours := func(all []*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		all = slices.DeleteFunc(slices.Clone(all), func(one *discoveryv1.EndpointSlice) bool { return one.Name == foreign.Name })
		if len(all) != 1 || all[0].Labels[discoveryv1.LabelManagedBy] != "slicefeed-default" || len(all[0].OwnerReferences) != 1 ||
			!pair.AreJust(pair.Ready, e2e.Addresses(workers)...)(all) || *all[0].Ports[0].Port != pair.NodePort {
			return nil
		}
		return all[0]
	}
	client := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace)
	for _, one := range []struct {
		name string
		harm func(context.Context, *discoveryv1.EndpointSlice) error
	}{
		{"an endpoint that somebody adds is removed, and one that somebody removes is back", func(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
			slice.Endpoints[0].Addresses = []string{"10.0.1.251"}
			_, err := client.Update(ctx, slice, metav1.UpdateOptions{})
			return err
		}},
		{"a port that somebody changes is changed back", func(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
			*slice.Ports[0].Port = 31000
			_, err := client.Update(ctx, slice, metav1.UpdateOptions{})
			return err
		}},
		{"a slice of ours that somebody deletes is made again", func(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
			return client.Delete(ctx, slice.Name, metav1.DeleteOptions{})
		}},
	} {
		s.Step(one.name, func(s *e2e.Setup) {
			before := ours(s.Now())
			if before == nil {
				s.T.Fatalf("the slices are not right: %s", pair.Describe(s.Now()))
			}
			s.Must(one.harm(s.Ctx(), before.DeepCopy()))
			took := s.Await("they are right again", func(all []*discoveryv1.EndpointSlice) bool {
				now := ours(all)
				return now != nil && now.ResourceVersion != before.ResourceVersion
			})
			s.T.Logf("repaired after %s", took)
		})
	}
	s.Step("a slice of somebody else is not touched", func(s *e2e.Setup) {
		now, err := client.Get(s.Ctx(), foreign.Name, metav1.GetOptions{})
		s.Must(err)
		if now.ResourceVersion != foreign.ResourceVersion {
			s.T.Errorf("it was written: %+v", now)
		}
		s.AwaitEvent("ForeignSlices")
	})
}

func TestMoreThanAHundredEndpointsAndNoCloud(t *testing.T) {
	s := e2e.New(t, e2e.Options{Inventory: e2e.WithoutCloud(), Writer: map[string]string{"HEALTH_CHECK_MODE": "off"}})
	asked := len(s.Cloud.Requests())
	var all []netip.Addr
	for n := range 150 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 1, byte(n + 1)}))
		s.CreateNode(fmt.Sprintf("node-%03d", n+1), all[n])
	}
	s.StartAll()
	s.Await("150 endpoints are ready", pair.AreJust(pair.Ready, all...))
	var sizes []int
	for _, one := range s.Now() {
		sizes = append(sizes, len(one.Endpoints))
	}
	if len(sizes) != 2 || slices.Max(sizes) > 100 {
		s.T.Errorf("the slices have %v endpoints, want two of at most 100", sizes)
	}
	for _, name := range []string{"node-007", "node-142"} {
		before := s.WriteCount()
		s.Must(s.SecuredClient().CoreV1().Nodes().Delete(s.Ctx(), name, metav1.DeleteOptions{}))
		n := len(pair.Conditions(s.Now())) - 1
		s.Await("one less is listed", func(all []*discoveryv1.EndpointSlice) bool { return len(pair.Conditions(all)) == n })
		if n := s.WriteCount() - before; n != 1 {
			s.T.Errorf("one change took %d writes", n)
		}
	}
	if now := len(s.Cloud.Requests()); now != asked {
		s.T.Errorf("the cloud was asked %d times", now-asked)
	}
}
