package reconciler

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func TestKeptEndpointsEqualThoseReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := targets.Target{Key: targets.Key{Namespace: "web", Name: "shop"}, ManagedBy: "ours", FirstName: "shop"}
		desired := target.Desired()
		slicesNow := make([]*discoveryv1.EndpointSlice, 3)
		for i := range slicesNow {
			slicesNow[i] = drawSlice(t, i)
		}
		var kept currentEndpoints
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			slicesNow = slices.Clone(slicesNow)
			for i := range slicesNow {
				if rapid.Bool().Draw(t, "changes") {
					slicesNow[i] = drawSlice(t, i)
				}
			}
			before, then := kept.list, slices.Clone(kept.list)
			ports := drawPorts(t)
			got := kept.read(desired, slicesNow, ports)
			if diff := cmp.Diff(readAgain(desired, slicesNow, ports), got, addresses, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(then, before, addresses); diff != "" {
				t.Fatalf("the previous list was altered: %s", diff)
			}
		}
	})
}

// readAgain returns what these slices list, as the planner reads it.
func readAgain(desired planner.Desired, existing []*discoveryv1.EndpointSlice, ports portRule) (all []verdict.CurrentEndpoint) {
	for _, e := range planner.CurrentEndpoints(desired, existing) {
		for _, slice := range desired.OwnedSlices(existing) {
			listed := endpointsOf(desired, slice, ports)
			if at := slices.IndexFunc(listed, func(l verdict.CurrentEndpoint) bool { return l.Address == e.Address }); at >= 0 {
				all = append(all, listed[at])
				break
			}
		}
	}
	return all
}

// drawPorts draws what gives the ports of endpoints: a rule that may have changed.
func drawPorts(t *rapid.T) portRule {
	rule := rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "rule of ports")
	return portRule{rule, func(source string, known []contract.Port) (verdict.Ports, string) {
		return verdict.Ports{Text: fmt.Sprint(rule, source, known)}, ""
	}}
}

// drawSlice draws an owned or foreign slice. It may list addresses of another slice too.
func drawSlice(t *rapid.T, i int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	slice.Namespace, slice.Name = "web", fmt.Sprintf("shop-%d", i)
	slice.Ports = []discoveryv1.EndpointPort{{Port: new(rapid.Int32Range(1, 2).Draw(t, "port"))}}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: "ours"}
	if rapid.IntRange(0, 9).Draw(t, "foreign") == 0 {
		slice.Labels[discoveryv1.LabelManagedBy] = "others"
	}
	for n := range rapid.IntRange(0, 12).Draw(t, "endpoints") {
		n += 10 * i // the last ones are in the next slice too
		ready := rapid.Bool().Draw(t, "ready")
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address(n).String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	if rapid.IntRange(0, 9).Draw(t, "invalid") == 0 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"no address"}})
	}
	return slice
}

func TestListedEndpointsConvertToCurrentOnes(t *testing.T) {
	decided := []verdict.Endpoint{
		{
			Address:    netip.MustParseAddr("10.0.1.1"),
			Source:     "default",
			Listed:     true,
			Conditions: verdict.Conditions{Ready: true, Serving: true},
		},
		{Address: netip.MustParseAddr("10.0.1.2"), Source: "default", Verdict: verdict.Remove},
		{
			Address:    netip.MustParseAddr("10.0.1.3"),
			Source:     "default",
			Listed:     true,
			Conditions: verdict.Conditions{Serving: true, Terminating: true},
		},
	}
	want := []verdict.CurrentEndpoint{
		{Address: decided[0].Address, Source: "default", Conditions: decided[0].Conditions},
		{Address: decided[2].Address, Source: "default", Conditions: decided[2].Conditions},
	}
	if diff := cmp.Diff(want, written(t, decided), addresses); diff != "" {
		t.Error(diff)
	}
}

// written returns what the slices list after a decision.
func written(t *testing.T, decided []verdict.Endpoint) []verdict.CurrentEndpoint {
	desired := planner.Desired{
		Namespace: "web",
		Service:   "shop",
		ManagedBy: "ours",
		FirstName: "shop",
		Families:  []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
	}
	desired.Endpoints, desired.PortGroups = ListedEndpoints(decided, func(string, uint16) bool { return true })
	plan := planner.Compute(desired, nil)
	if len(plan.Create) != 1 {
		t.Fatalf("%d slices", len(plan.Create))
	}
	return new(currentEndpoints).read(desired, plan.Create, noPorts)
}

// This is the last gate before a write, whatever came before it.
func TestPortsThatAreNotAllowedAreNotWritten(t *testing.T) {
	allows := func(source string, port uint16) bool { return port >= 30000 && (source == "blue" || port != 30081) }
	decided := []verdict.Endpoint{
		{Source: "blue", Listed: true, Ports: verdict.Ports{Text: "http/TCP:30081,ssh/TCP:22"}},
		{Source: "blue", Listed: true, Ports: verdict.Ports{Text: "ssh/TCP:22"}},
		{Source: "green", Listed: true, Ports: verdict.Ports{Text: "http/TCP:30081"}},
		{Source: "green", Listed: true, Ports: verdict.Ports{Text: "http/TCP:30080:h2c"}},
	}
	for i := range decided {
		decided[i].Address = address(i)
	}
	listed, groups := ListedEndpoints(decided, allows)
	got := map[netip.Addr]string{}
	for _, e := range listed {
		for _, p := range groups[e.PortGroup] {
			got[e.Address] += fmt.Sprint(*p.Name, *p.Port, ptr.Deref(p.AppProtocol, ""))
		}
	}
	if diff := cmp.Diff(map[netip.Addr]string{address(0): "http30081", address(3): "http30080h2c"}, got, addresses); diff != "" {
		t.Error(diff)
	}
}
