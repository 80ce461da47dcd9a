package planner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

var compareAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func drawEndpoints(t *rapid.T, sources []string) []Endpoint {
	var out []Endpoint
	for i := range 14 {
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
		if i >= 9 {
			addr = netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+1))
		}
		if !rapid.Bool().Draw(t, "listed") {
			continue
		}
		out = append(out, Endpoint{
			Address:  addr,
			Ready:    rapid.Bool().Draw(t, "ready"),
			Serving:  rapid.Bool().Draw(t, "serving"),
			Zone:     rapid.SampledFrom([]string{"", "", "a"}).Draw(t, "zone"),
			Group:    rapid.SampledFrom(sources).Draw(t, "source"),
			Hostname: rapid.SampledFrom([]string{"", "", "db-0"}).Draw(t, "hostname"),
			Hints: rapid.SampledFrom([]*discoveryv1.EndpointHints{nil, nil, {}, zoneHints("a"), zoneHints("a", "b"), zoneHints("b", "a")}).
				Draw(t, "hints"),
			PortGroup: rapid.SampledFrom([]string{"", "", "other", "same", "unknown"}).Draw(t, "port group"),
		})
	}
	return rapid.Permutation(out).Draw(t, "order")
}

func zoneHints(zones ...string) *discoveryv1.EndpointHints {
	hints := &discoveryv1.EndpointHints{}
	for _, zone := range zones {
		hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: zone})
	}
	return hints
}

// portsOf returns the ports that an endpoint's slice must have.
func portsOf(d Desired, e Endpoint) []discoveryv1.EndpointPort {
	if ports, ok := d.PortGroups[e.PortGroup]; ok {
		return ports
	}
	return d.Ports
}

func drawDesired(t *rapid.T) Desired {
	d := testTarget(0)
	d.MaxPerSlice = rapid.IntRange(1, 4).Draw(t, "max")
	d.Families = rapid.SampledFrom([][]discoveryv1.AddressType{{"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}, {"IPv6", "IPv4"}}).Draw(t, "families")
	d.Endpoints = drawEndpoints(t, []string{"", "default", "blue", "green"})
	d.Labels = rapid.SampledFrom([]map[string]string{nil, {"foreign": "a"}, {"foreign": "b"}}).Draw(t, "labels")
	if rapid.Bool().Draw(t, "two ports") {
		d.Ports = append(
			d.Ports,
			discoveryv1.EndpointPort{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(int32(53))},
		)
	}
	if rapid.Bool().Draw(t, "port groups") {
		d.PortGroups = map[string][]discoveryv1.EndpointPort{
			"other": {{Name: ptr.To("http"), Port: ptr.To(rapid.SampledFrom([]int32{8080, 8081}).Draw(t, "other port"))}},
			"same":  d.Ports,
		}
	}
	return d
}

// drawCluster draws any possible state: owned slices, also modified, with duplicates or unknown
// endpoints, or too full, and foreign slices.
func drawCluster(t *rapid.T, d Desired) *fakeCluster {
	c := &fakeCluster{}
	for i := range rapid.IntRange(0, 6).Draw(t, "slices") {
		c.version++
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:       d.Namespace,
				Name:            fmt.Sprintf("%s-%d", d.FirstName, i+1),
				UID:             types.UID(fmt.Sprint("uid-", c.version)),
				ResourceVersion: fmt.Sprint(c.version),
				Labels: map[string]string{
					discoveryv1.LabelServiceName: rapid.SampledFrom([]string{d.Service, d.Service, d.Service, "other"}).Draw(t, "service"),
					discoveryv1.LabelManagedBy: rapid.SampledFrom([]string{d.ManagedBy, d.ManagedBy, d.ManagedBy, "other"}).
						Draw(t, "manager"),
					"foreign": "a",
				},
				OwnerReferences: rapid.SampledFrom([][]metav1.OwnerReference{nil, {d.Owner}, {{APIVersion: "v1", Kind: "Service", Name: "x", UID: "x"}, {APIVersion: "v1", Kind: "Node", Name: "n", UID: "n"}}}).
					Draw(t, "owners"),
			},
			AddressType: rapid.SampledFrom([]discoveryv1.AddressType{"IPv4", "IPv4", "IPv6", "FQDN"}).Draw(t, "type"),
			Ports: rapid.SampledFrom([][]discoveryv1.EndpointPort{d.Ports, d.Ports, {{Name: ptr.To("http"), Port: ptr.To(int32(8080))}}, nil}).
				Draw(t, "ports"),
		}
		if i == 0 {
			s.Name = d.FirstName
		}
		if rapid.IntRange(0, 4).Draw(t, "is being deleted") == 0 {
			s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		if source := rapid.SampledFrom([]string{"", "default", "blue", "old"}).Draw(t, "label"); source != "" {
			s.Labels[labelGroup] = source
		}
		for _, e := range drawEndpoints(t, []string{""}) {
			if FamilyOf(e.Address) == s.AddressType {
				s.Endpoints = append(s.Endpoints, toAPI(&e))
			}
		}
		c.slices = append(c.slices, s)
	}
	return c
}

// expectedEndpoints is what CurrentEndpoints must return after the plan.
func expectedEndpoints(d Desired) []Endpoint {
	var out []Endpoint
	for _, e := range d.Endpoints {
		if e.Group == "" {
			e.Group = defaultGroup
		}
		e.PortGroup = "" // the slices do not tell
		if slices.Contains(d.Families, FamilyOf(e.Address)) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Endpoint) int { return a.Address.Compare(b.Address) })
	return out
}

func TestPlanReachesDesiredFromAnyState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDesired(t)
		c := drawCluster(t, d)
		before, visibleBefore := c.copy(), c.visibleCounts(d)

		plan := Compute(d, c.slices)
		if diff := cmp.Diff(before, c.slices); diff != "" {
			t.Fatalf("existing slices modified: %s", diff)
		}
		shuffled := rapid.Permutation(c.slices).Draw(t, "cache order")
		if diff := cmp.Diff(plan, Compute(d, shuffled)); diff != "" {
			t.Fatalf("plan depends on the order of the cache: %s", diff)
		}

		stays := map[netip.Addr]struct{}{}
		for _, e := range expectedEndpoints(d) {
			if visibleBefore[e.Address] > 0 {
				stays[e.Address] = struct{}{}
			}
		}
		c.apply(t, plan, func() {
			now := c.visibleCounts(d)
			for addr := range stays {
				if now[addr] == 0 {
					t.Fatalf("%s is absent between two writes", addr)
				}
			}
		})

		if diff := cmp.Diff(expectedEndpoints(d), CurrentEndpoints(d, c.slices), compareAddr); diff != "" {
			t.Fatalf("slices differ from the desired endpoints: %s", diff)
		}
		for addr, n := range c.visibleCounts(d) {
			if n != 1 {
				t.Fatalf("%s is listed %d times", addr, n)
			}
		}
		for _, s := range c.slices {
			if !d.Owns(s) || isTerminating(s) && len(s.Endpoints) == 0 {
				continue
			}
			if len(s.Endpoints) > d.MaxPerSlice {
				t.Fatalf("%s has %d endpoints", s.Name, len(s.Endpoints))
			}
			known := func(ports []discoveryv1.EndpointPort) bool { return PortsEqual(s.Ports, ports) }
			if !known(d.Ports) && !slices.ContainsFunc(slices.Collect(maps.Values(d.PortGroups)), known) ||
				s.Labels[discoveryv1.LabelServiceName] != d.Service {
				t.Fatalf("%s: unexpected ports or labels", s.Name)
			}
			for _, e := range s.Endpoints {
				addr := netip.MustParseAddr(e.Addresses[0])
				if FamilyOf(addr) != s.AddressType {
					t.Fatalf("%s mixes families", s.Name)
				}
				if at := slices.IndexFunc(
					d.Endpoints,
					func(e Endpoint) bool { return e.Address == addr },
				); !known(
					portsOf(d, d.Endpoints[at]),
				) {
					t.Fatalf("%s in %s has the ports of others", addr, s.Name)
				}
			}
		}
		for _, s := range before {
			if i := c.find(s.Name); !d.Owns(s) && (i < 0 || !cmp.Equal(s, c.slices[i])) {
				t.Fatalf("%s is foreign and was modified", s.Name)
			}
			if i := c.find(s.Name); i >= 0 && d.Owns(s) && !isTerminating(s) && c.slices[i].Labels["foreign"] != d.Labels["foreign"] {
				t.Fatalf("%s: label differs from the Service: %v", s.Name, c.slices[i].Labels)
			}
		}
		if again := Compute(d, c.slices); !again.Empty() {
			t.Fatalf("planning again gives %d writes", again.Writes())
		}
	})
}

func TestOneEndpointChangeIsAtMostOneWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDesired(t)
		for i := range d.Endpoints {
			d.Endpoints[i].Group = ""
		}
		c := drawCluster(t, d)
		c.apply(t, Compute(d, c.slices), func() {})

		d.Endpoints = slices.Clone(d.Endpoints)
		var changed string
		at := rapid.IntRange(0, 13).Draw(t, "which")
		fresh := Endpoint{Address: netip.AddrFrom4([4]byte{10, 9, 9, byte(at + 1)}), Ready: true, Serving: true}
		switch {
		case at >= len(d.Endpoints):
			d.Endpoints, changed = append(d.Endpoints, fresh), "added"
		case rapid.Bool().Draw(t, "remove"):
			d.Endpoints, changed = slices.Delete(d.Endpoints, at, at+1), "removed"
		case d.Endpoints[at].Address.Is4() && rapid.Bool().Draw(t, "replace"):
			fresh.PortGroup = d.Endpoints[at].PortGroup
			d.Endpoints[at], changed = fresh, "replaced"
		default:
			d.Endpoints[at].Ready, changed = !d.Endpoints[at].Ready, "flipped"
		}
		if plan := Compute(d, c.slices); plan.Writes() > 1 {
			t.Fatalf("one endpoint %s: %d creates, %d updates, %d deletes", changed, len(plan.Create), len(plan.Update), len(plan.Delete))
		}
	})
}

func TestEndpointsStayVisibleWhileLabelIsRepaired(t *testing.T) {
	d := testTarget(2)
	d.MaxPerSlice = 3
	c := appliedCluster(t, d)
	shown := c.slices[0]
	for _, s := range []struct {
		name, service, source string
		list                  []Endpoint
	}{
		{shown.Name, d.Service, "blue", d.Endpoints[:1]},              // the only visible slice with the first endpoint
		{shown.Name + "-2", "other", defaultGroup, d.Endpoints},       // owned by its owner reference; its label is repaired
		{shown.Name + "-3", d.Service, defaultGroup, d.Endpoints[1:]}, // has room for it
	} {
		slice := shown.DeepCopy()
		slice.Name, slice.Endpoints = s.name, nil
		slice.Labels[discoveryv1.LabelServiceName], slice.Labels[labelGroup] = s.service, s.source
		for _, e := range s.list {
			slice.Endpoints = append(slice.Endpoints, toAPI(&e))
		}
		c.slices = append(c.slices, slice)
	}
	c.slices = c.slices[1:]
	c.slices[2].Endpoints[0].Conditions.Ready = ptr.To(false) // so the slice is written anyway
	d.Endpoints = append(slices.Clone(d.Endpoints), Endpoint{Address: netip.MustParseAddr("10.0.0.9"), Ready: true, Group: "blue"})

	c.apply(t, Compute(d, c.slices), func() {
		if c.visibleCounts(d)[d.Endpoints[0].Address] == 0 {
			t.Fatal("the endpoint is absent between two writes")
		}
	})
}
