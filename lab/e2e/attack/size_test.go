package attack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// maxSliceBytes is what a slice that is made under the policy takes in etcd at most, as docs/design/policy.md says.
const maxSliceBytes = 49 << 10

// largest makes of a slice the largest one that the policy passes: endpoints and ports in full, and labels as
// many as may be copied from a Service.
func largest(slice *discoveryv1.EndpointSlice) {
	full(slice)
	for i := range slice.Endpoints {
		slice.Endpoints[i].Zone, slice.Endpoints[i].Hostname = new(strings.Repeat("z", 63)), new(strings.Repeat("h", 63))
		slice.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(true)}
	}
	manyLabels(32, 8<<10)(slice)
}

// manyLabels adds so many labels of so many bytes, keys and values together.
func manyLabels(count, bytes int) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) {
		for i := range count {
			size := bytes/count - 63
			prefix := strings.Repeat(strings.Repeat("d", 63)+".", 4)[:max(0, size-64)] // a DNS name
			name := fmt.Sprintf("%03d", i) + strings.Repeat("n", min(size, 63)-3)
			if prefix != "" {
				name = strings.TrimRight(prefix, ".") + "/" + name
			}
			slice.Labels[name] = strings.Repeat("v", 63)
		}
	}
}

func bigAnnotation(bytes int) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) {
		slice.Annotations = map[string]string{"a": strings.Repeat("x", bytes)}
	}
}

// managedFieldsOf adds managed fields of the given size. Clients can send managedFields themselves.
func managedFieldsOf(bytes int) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) {
		slice.ManagedFields = append(slice.ManagedFields, largeManagedFields("discovery.k8s.io/v1", bytes))
	}
}

func largeManagedFields(apiVersion string, bytes int) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: "x", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: apiVersion, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:` + strings.Repeat("x", bytes) + `":{}}`),
	}
}

func oneMore(slice *discoveryv1.EndpointSlice) {
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"fd00:1::b"}})
}

func endpoint(alter func(*discoveryv1.Endpoint)) func(*discoveryv1.EndpointSlice) {
	return func(slice *discoveryv1.EndpointSlice) { alter(&slice.Endpoints[len(slice.Endpoints)-1]) }
}

// Large slices are what fills etcd, until it takes no write from anybody.
func TestAttackSlicesLargerThanAnyOfTheWriters(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{})
	extraRightsGiven(s)
	thief, twin := accounts(s)
	inside := netip.MustParseAddr("10.0.1.66")
	template := e2e.NewSlice("new", "slicefeed-default", inside, inside.Next())
	s.Must(create(changed(template, func(slice *discoveryv1.EndpointSlice) { slice.Name = "ours" }))(s.Ctx(), thief, nil))
	before := everySlice(s)
	const fields, metadata = "one address of an endpoint", "metadata of an EndpointSlice"
	refusedByPolicy(s, "slicefeed-writer", []attack{
		{"1.25 MB of endpoints", create(changed(template, full, func(slice *discoveryv1.EndpointSlice) {
			for i := range 900 {
				slice.Endpoints = append(slice.Endpoints,
					discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("fd00:1::b:%x", i)}, Zone: new(strings.Repeat("z", 1250))})
			}
		})), "at most 100 endpoints"},
		{"one endpoint too many", create(changed(template, full, oneMore)), "at most 100 endpoints"},
		{"a hundred addresses of an endpoint", create(changed(template, func(slice *discoveryv1.EndpointSlice) {
			for i := range 98 {
				slice.Endpoints[0].Addresses = append(slice.Endpoints[0].Addresses, fmt.Sprintf("10.0.1.%d", i+100))
			}
		})), fields},
		{
			"a zone without an end",
			change(pair.Namespace, "ours", endpoint(func(e *discoveryv1.Endpoint) { e.Zone = new(strings.Repeat("z", 64)) })),
			fields,
		},
		{"a node's name", change(pair.Namespace, "ours", endpoint(func(e *discoveryv1.Endpoint) { e.NodeName = new("node-1") })), fields},
		{"a target", create(changed(template, endpoint(func(e *discoveryv1.Endpoint) {
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "kube-system", Name: "x", FieldPath: strings.Repeat("x", 100_000)}
		}))), fields},
		{"hints", create(changed(template, endpoint(func(e *discoveryv1.Endpoint) {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "here"}}}
		}))), fields},
		{"ports with long names", create(changed(template, full, func(slice *discoveryv1.EndpointSlice) {
			for i := range slice.Ports {
				slice.Ports[i].AppProtocol = new(strings.Repeat(strings.Repeat("d", 60)+".", 4) + "d/" + strings.Repeat("p", 63))
			}
		})), "ports of an EndpointSlice"},
		{
			"a port that is allowed for another protocol",
			create(changed(template, atPort(new(int32(8080))), func(slice *discoveryv1.EndpointSlice) {
				slice.Ports[0].Protocol = new(corev1.ProtocolUDP)
			})),
			"port 8080 is not among the allowed ports for UDP",
		},
		{"annotations", change(pair.Namespace, "ours", bigAnnotation(200_000)), metadata},
		{"annotations just too large", create(changed(template, bigAnnotation(20_480))), metadata},
		{"annotations in characters of four bytes", create(changed(template, func(slice *discoveryv1.EndpointSlice) {
			slice.Annotations = map[string]string{"a": strings.Repeat("𝄞", 10_000)}
		})), metadata},
		{
			"zones in characters of four bytes",
			create(changed(template, endpoint(func(e *discoveryv1.Endpoint) { e.Zone = new(strings.Repeat("𝄞", 60)) }))),
			fields,
		},
		{"labels", create(changed(template, manyLabels(1000, 300_000))), metadata},
		{"an owner with a long name", create(changed(template, withOwner(metav1.OwnerReference{
			APIVersion: "v1", Kind: "Service", Name: strings.Repeat("x", 1_000_000), UID: "1",
		}))), metadata},
		{"as many owners as there is room for", create(changed(template, func(slice *discoveryv1.EndpointSlice) {
			for i := range 5000 {
				withOwner(metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "x", UID: types.UID(fmt.Sprint(i))})(slice)
			}
		})), metadata},
		{"notes of who set which field", change(pair.Namespace, "ours", managedFieldsOf(1_000_000)), metadata},
	})
	if diff := cmp.Diff(before, everySlice(s)); diff != "" {
		t.Errorf("slices have changed (-before +after):\n%s", diff)
	}

	s.Must(create(changed(template, largest))(s.Ctx(), thief, nil))
	stored, err := twin.DiscoveryV1().EndpointSlices(pair.Namespace).Get(s.Ctx(), template.Name, metav1.GetOptions{})
	s.Must(err)
	t.Logf("the largest slice that the writer may have takes %d bytes", stored.Size())
	if stored.Size() > maxSliceBytes {
		t.Errorf("the largest slice that passes takes %d bytes, want %d at most", stored.Size(), maxSliceBytes)
	}
}
