package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// Whoever has the writer's token can list addresses within the allowlist. A new leader takes them for endpoints that have
// left their source all at once, which the shrink guard holds; a resync lets them go.
func TestEndpointsThatAnAttackerWroteLeaveAfterAResync(t *testing.T) {
	s := enter(t, script{writer: map[string]string{"HEALTH_CHECK_MODE": "off", "SHRINK_WINDOW": "10m"}})
	s.start()
	workers := s.join(2)
	writer := s.writers[0]
	s.slices("the workers are ready", pair.AreJust(pair.Ready, addresses(workers)...))

	attackers := make([]netip.Addr, 40)
	for n := range attackers {
		attackers[n] = netip.AddrFrom4([4]byte{10, 0, 1, byte(150 + n)})
	}
	all := append(addresses(workers), attackers...)
	s.step("a new leader keeps what was written with a stolen token", func(s *stage) {
		s.must(writer.Terminate(20 * time.Second))
		slice := s.slice().DeepCopy()
		for _, a := range attackers {
			endpoint := *slice.Endpoints[0].DeepCopy()
			endpoint.Addresses = []string{a.String()}
			slice.Endpoints = append(slice.Endpoints, endpoint)
		}
		_, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Update(s.ctx(), slice, metav1.UpdateOptions{})
		s.must(err)
		s.must(writer.Start(s.ctx()))
		s.event("ShrinkLimited")
		s.slices("they are still listed", pair.AreJust(pair.Ready, all...))
	})
	s.step("a resync lets them go at once, and says so", func(s *stage) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
			"slicefeed.dev/resync": time.Now().UTC().Format(time.RFC3339),
		}}})
		s.must(err)
		_, err = s.ConsumingClient().
			CoreV1().
			Services(pair.Namespace).
			Patch(s.ctx(), pair.Service, types.MergePatchType, patch, metav1.PatchOptions{})
		s.must(err)
		took := s.slices("the workers alone are listed", func(all []*discoveryv1.EndpointSlice) bool {
			return pair.AreJust(pair.Ready, addresses(workers)...)(all)
		})
		s.t.Logf("they left after %s", took)
		if note := s.event("Resync").Note; !strings.Contains(note, fmt.Sprint(len(attackers), " endpoints")) {
			s.t.Errorf("it says %q", note)
		}
	})
}
