package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newSlice returns an owned slice with these addresses, all ready.
func newSlice(all ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop-slicefeed", Labels: map[string]string{
			discoveryv1.LabelServiceName: "shop", "slicefeed.dev/source": "default",
		}, OwnerReferences: []metav1.OwnerReference{{Kind: "Service", Name: "shop", UID: "1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(30080))}},
	}
	for _, a := range all {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return slice
}

func formatChanges(all []Change) (text string) {
	for i := range all {
		text += "  " + all[i].String() + "\n"
	}
	return text
}

func TestComparesSlices(t *testing.T) {
	was, now := newSlice("10.0.1.9", "10.0.1.10", "10.0.1.100"), newSlice("10.0.1.9", "10.0.1.10", "10.0.1.11", "10.0.1.12")
	was.Endpoints[0].NodeName = new("node\x1b[2J")
	was.Labels["slicefeed.dev/source"], was.OwnerReferences = "other", nil
	was.Ports[0].Port = new(int32(30081))
	was.Endpoints[1].Conditions = discoveryv1.EndpointConditions{}
	now.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	now.Endpoints[3].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(false)}
	now.Endpoints[2].Conditions.Serving, now.Endpoints[2].Zone, now.Endpoints[2].Hostname = new(false), new("eu-1"), new("db-0")
	want := `  ~ label slicefeed.dev/source other -> default
  + owner Service shop 1
  ~ port http 30081/TCP -> 30080/TCP
  ~ endpoint 10.0.1.9 ready, node node [2J -> ready
  ~ endpoint 10.0.1.10 ready -> draining
  + endpoint 10.0.1.11 ready=true serving=false terminating=false, zone eu-1, hostname db-0
  + endpoint 10.0.1.12 not ready
  - endpoint 10.0.1.100 ready
`
	if d := cmp.Diff(want, formatChanges(CompareSlices(was, now, nil))); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := formatChanges(CompareSlices(now, now, nil)); d != "" {
		t.Errorf("of nothing: %s", d)
	}
	for line := range strings.Lines(formatChanges(CompareSlices(was, nil, nil))) {
		if !strings.HasPrefix(line, "  - ") {
			t.Errorf("of a deletion: %s", line)
		}
	}
}
