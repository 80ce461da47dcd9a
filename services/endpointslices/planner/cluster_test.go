package planner

import (
	"fmt"
	"net/netip"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// fakeCluster applies plans as an API server would.
type fakeCluster struct {
	slices  []*discoveryv1.EndpointSlice
	version int
}

func (c *fakeCluster) copy() []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, s := range c.slices {
		out = append(out, s.DeepCopy())
	}
	return out
}

func (c *fakeCluster) find(name string) int {
	for i, s := range c.slices {
		if s.Name == name {
			return i
		}
	}
	return -1
}

// apply applies a plan write by write, and rejects what an API server would reject.
func (c *fakeCluster) apply(t testFailer, plan Plan, step func()) {
	t.Helper()
	for _, slice := range plan.Create {
		if c.find(slice.Name) >= 0 {
			t.Fatalf("create %s: already exists", slice.Name)
		}
		stored := slice.DeepCopy()
		c.version++
		stored.UID = types.UID(fmt.Sprint("uid-", c.version))
		stored.ResourceVersion = fmt.Sprint(c.version)
		c.slices = append(c.slices, stored)
		step()
	}
	for _, slice := range plan.Update {
		i := c.find(slice.Name)
		if i < 0 {
			t.Fatalf("update %s: does not exist", slice.Name)
		}
		if c.slices[i].ResourceVersion != slice.ResourceVersion {
			t.Fatalf("update %s: conflict", slice.Name)
		}
		if c.slices[i].AddressType != slice.AddressType {
			t.Fatalf("update %s: addressType is immutable", slice.Name)
		}
		stored := slice.DeepCopy()
		c.version++
		stored.ResourceVersion = fmt.Sprint(c.version)
		c.slices[i] = stored
		step()
	}
	for _, slice := range plan.Delete {
		i := c.find(slice.Name)
		if i < 0 || c.slices[i].UID != slice.UID {
			t.Fatalf("delete %s: does not exist", slice.Name)
		}
		c.slices = append(c.slices[:i:i], c.slices[i+1:]...)
		step()
	}
}

// visibleCounts returns how often each address is listed in owned slices that consumers find.
func (c *fakeCluster) visibleCounts(d Desired) map[netip.Addr]int {
	out := map[netip.Addr]int{}
	for _, s := range c.slices {
		if s.Labels[discoveryv1.LabelManagedBy] == d.ManagedBy && s.Labels[discoveryv1.LabelServiceName] == d.Service {
			for _, e := range s.Endpoints {
				out[netip.MustParseAddr(e.Addresses[0])]++
			}
		}
	}
	return out
}

type testFailer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func readyEndpoint(addr string) Endpoint {
	return Endpoint{Address: netip.MustParseAddr(addr), Ready: true, Serving: true}
}

const (
	labelGroup    = "example.com/group"
	labelInstance = "example.com/instance"
	labelImport   = "multicluster.kubernetes.io/service-name"
	labelCluster  = "multicluster.kubernetes.io/source-cluster"
	defaultGroup  = "default"
)

func instance(name string) map[string]string { return map[string]string{labelInstance: name} }

var ownerKinds = []schema.GroupKind{{Kind: "Service"}, {Group: "multicluster.x-k8s.io", Kind: "ServiceImport"}}

// testTarget is a target with n ready endpoints.
func testTarget(n int) Desired {
	d := Desired{
		Namespace: "web", Service: "shop", FirstName: "shop-nodes", ManagedBy: "nodes-controller", InstanceLabels: instance("a"),
		GroupLabels: []string{labelGroup}, DefaultGroup: defaultGroup, OwnerKinds: ownerKinds,
		Owner:    metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "shop", UID: "svc-1"},
		Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		Ports:    []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(30080))}},
	}
	for i := range n {
		d.Endpoints = append(d.Endpoints, readyEndpoint(fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
	}
	return d
}

// appliedCluster returns a cluster after the plan for d was applied.
func appliedCluster(t testing.TB, d Desired) *fakeCluster {
	t.Helper()
	c := &fakeCluster{}
	c.apply(t, Compute(d, nil), func() {})
	if again := Compute(d, c.slices); !again.Empty() {
		t.Fatalf("planning again gives %d writes", again.Writes())
	}
	return c
}
