package inputs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// A list that follows the changes equals one that is converted again, whatever has changed.
func TestIncrementalMembersEqualThoseReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := Choice{Families: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}}
		nodes := map[string]*subscriber.Member{}
		var followed members
		for range rapid.IntRange(1, 8).Draw(t, "sets") {
			for range rapid.IntRange(0, 30).Draw(t, "changes") {
				n := rapid.IntRange(0, 40).Draw(t, "node")
				name := fmt.Sprintf("node-%02d", n)
				if rapid.Bool().Draw(t, "leaves") {
					delete(nodes, name)
					continue
				}
				one := &subscriber.Member{Name: name, State: verdict.State(rapid.IntRange(0, 3).Draw(t, "state"))}
				if rapid.Bool().Draw(t, "serves") {
					one.Ports = []contract.Port{{Protocol: "TCP", Number: rapid.Uint16Range(1, 2).Draw(t, "port")}}
				}
				// An address may go from a node to the next, but no two of a set share one.
				n += rapid.IntRange(0, 1).Draw(t, "moves")
				for _, a := range []netip.Addr{address(n), netip.MustParseAddr(fmt.Sprintf("fd00::%d", n))} {
					if rapid.Bool().Draw(t, "has") && !hasAddress(nodes, name, a) {
						one.Addresses = append(one.Addresses, a)
					}
				}
				nodes[name] = one
			}
			var set []*subscriber.Member
			for _, name := range slices.Sorted(maps.Keys(nodes)) {
				set = append(set, nodes[name])
			}
			of.Ports = drawPorts(t)
			before, then := followed.list, slices.Clone(followed.list)
			if diff := cmp.Diff(new(members).convert(set, of), followed.convert(set, of), addresses); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(then, before, addresses); diff != "" {
				t.Fatalf("the previous list was altered: %s", diff)
			}
		}
	})
}

func hasAddress(nodes map[string]*subscriber.Member, but string, a netip.Addr) bool {
	for name, one := range nodes {
		if name != but && slices.Contains(one.Addresses, a) {
			return true
		}
	}
	return false
}

func TestIncrementalEndpointsEqualThoseReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := targets.Target{Key: targets.Key{Namespace: "web", Name: "shop"}, ManagedBy: "ours", FirstName: "shop"}
		desired := target.Desired()
		slicesNow := make([]*discoveryv1.EndpointSlice, 3)
		for i := range slicesNow {
			slicesNow[i] = drawSlice(t, i)
		}
		var followed Current
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			slicesNow = slices.Clone(slicesNow)
			for i := range slicesNow {
				if rapid.Bool().Draw(t, "changes") {
					slicesNow[i] = drawSlice(t, i)
				}
			}
			before, then := followed.list, slices.Clone(followed.list)
			ports := drawPorts(t)
			got := followed.Convert(desired, slicesNow, ports)
			if diff := cmp.Diff(CurrentEndpoints(desired, slicesNow, ports), got, addresses, cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
			if diff := cmp.Diff(then, before, addresses); diff != "" {
				t.Fatalf("the previous list was altered: %s", diff)
			}
		}
	})
}

// drawPorts draws what gives the ports of endpoints: a rule that may have changed.
func drawPorts(t *rapid.T) Ports {
	rule := rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "rule of ports")
	return Ports{Rule: rule, Of: func(source string, known []contract.Port) (targets.Ports, string) {
		return targets.Ports{Text: fmt.Sprint(rule, source, known)}, ""
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

func TestPatchThatDoesNotFitIsRejected(t *testing.T) {
	at := func(e *verdict.CurrentEndpoint) netip.Addr { return e.Address }
	list := []verdict.CurrentEndpoint{{Address: address(1)}, {Address: address(3)}}
	for _, tt := range []struct {
		name string
		gone []netip.Addr
		came []verdict.CurrentEndpoint
		want []netip.Addr // nil: rejected
	}{
		{"nothing", nil, nil, []netip.Addr{address(1), address(3)}},
		{"one comes", nil, []verdict.CurrentEndpoint{{Address: address(2)}}, []netip.Addr{address(1), address(2), address(3)}},
		{"one goes", []netip.Addr{address(1)}, nil, []netip.Addr{address(3)}},
		{"one is replaced, one goes, one comes", []netip.Addr{address(3), address(1)}, []verdict.CurrentEndpoint{{Address: address(4)}, {Address: address(1)}}, []netip.Addr{address(1), address(4)}},
		{"one comes that is there", nil, []verdict.CurrentEndpoint{{Address: address(3)}}, nil},
		{"one goes that is not there", []netip.Addr{address(2)}, nil, nil},
	} {
		p := patch[verdict.CurrentEndpoint]{at, tt.gone, tt.came}
		got, ok := p.apply(list)
		var is []netip.Addr
		for i := range got {
			is = append(is, got[i].Address)
		}
		if ok != (tt.want != nil) || !slices.Equal(is, tt.want) {
			t.Errorf("%s: got %v, %t", tt.name, is, ok)
		}
	}
}
