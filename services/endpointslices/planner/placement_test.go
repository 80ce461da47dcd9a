package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// testSlice is an owned slice of one source with n ready endpoints, numbered from a start.
func testSlice(name, source string, from, n int) *discoveryv1.EndpointSlice {
	d := testTarget(0)
	s := d.newSlice(name, discoveryv1.AddressTypeIPv4)
	s.UID, s.ResourceVersion = types.UID(name), "1"
	s.Labels, s.Ports, s.OwnerReferences = d.sliceLabels(
		&plannedSlice{base: &discoveryv1.EndpointSlice{}, group: &sliceGroup{name: source}},
	), d.Ports, d.sliceOwners(
		nil,
	)
	for _, e := range testEndpoints("", from, n) {
		s.Endpoints = append(s.Endpoints, toAPI(&e))
	}
	return s
}

func testEndpoints(source string, from, n int) []Endpoint {
	var all []Endpoint
	for i := range n {
		e := readyEndpoint(fmt.Sprintf("10.0.0.%d", from+i))
		e.Group = source
		all = append(all, e)
	}
	return all
}

// withOtherZone changes the zone of endpoints, so that their slices are written.
func withOtherZone(all []Endpoint, at ...int) []Endpoint {
	for _, i := range at {
		all[i].Zone = "a"
	}
	return all
}

func withEndpoint(slice *discoveryv1.EndpointSlice, e Endpoint) *discoveryv1.EndpointSlice {
	slice.Endpoints = append(slice.Endpoints, toAPI(&e))
	return slice
}

// describePlan describes each write of a plan: the slice, its source, and the endpoints that it lists then.
func describePlan(p Plan) []string {
	var all []string
	for _, step := range []struct {
		verb   string
		slices []*discoveryv1.EndpointSlice
	}{{"create", p.Create}, {"update", p.Update}, {"delete", p.Delete}} {
		for _, s := range step.slices {
			line := step.verb + " " + s.Name
			if step.verb != "delete" {
				line += " of " + testTarget(0).Group(s) + ":"
				for _, e := range s.Endpoints {
					line += " " + e.Addresses[0][len("10.0.0."):]
				}
			}
			all = append(all, line)
		}
	}
	return all
}

func TestPlacesEndpoints(t *testing.T) {
	const a, b = "shop-nodes", "shop-nodes-2"
	for name, c := range map[string]struct {
		most     int
		existing []*discoveryv1.EndpointSlice
		desired  []Endpoint
		want     []string
	}{
		"a slice keeps its source while one of its endpoints does": {
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "blue", 1, 2)},
			desired:  slices.Concat(testEndpoints("", 1, 1), testEndpoints("blue", 2, 1)),
			want:     []string{"create shop-nodes-2 of default: 1", "update shop-nodes of blue: 2"},
		},
		"endpoints kept by another slice do not set the source of an empty slice": {
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 1), testSlice(b, "old", 1, 2)},
			desired:  slices.Concat(testEndpoints("", 1, 1), testEndpoints("blue", 2, 1)),
			want:     []string{"update shop-nodes-2 of blue: 2"},
		},
		"the smallest changing slice is merged into others": {
			most:     10,
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 2), testSlice(b, "default", 11, 6)},
			desired:  withOtherZone(slices.Concat(testEndpoints("", 1, 2), testEndpoints("", 11, 6)), 0, 2),
			want:     []string{"update shop-nodes-2 of default: 11 12 13 14 15 16 1 2", "delete shop-nodes"},
		},
		"no merge without room for new endpoints": {
			most:     10,
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 5), testSlice(b, "default", 11, 5)},
			desired:  withOtherZone(slices.Concat(testEndpoints("", 1, 5), testEndpoints("", 11, 5), testEndpoints("", 21, 3)), 0, 5),
			want:     []string{"update shop-nodes of default: 1 2 3 4 5 21 22 23", "update shop-nodes-2 of default: 11 12 13 14 15"},
		},
		"new endpoints of another source take no room": {
			most:     10,
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 6), testSlice(b, "default", 11, 2)},
			desired:  withOtherZone(slices.Concat(testEndpoints("", 1, 6), testEndpoints("", 11, 2), testEndpoints("blue", 21, 4)), 0, 6),
			want: []string{
				"create shop-nodes-blue of blue: 21 22 23 24", "update shop-nodes of default: 1 2 3 4 5 6 11 12", "delete shop-nodes-2",
			},
		},
		"slices of two sources are not merged": {
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 2), testSlice(b, "blue", 11, 2)},
			desired:  withOtherZone(slices.Concat(testEndpoints("", 1, 2), testEndpoints("blue", 11, 2)), 0, 2),
			want:     []string{"update shop-nodes of default: 1 2", "update shop-nodes-2 of blue: 11 12"},
		},
		"no merge while another slice releases endpoints": {
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 2), testSlice(b, "default", 11, 1)},
			desired:  withOtherZone(slices.Concat(testEndpoints("", 1, 1), testEndpoints("blue", 2, 1), testEndpoints("", 11, 1)), 2),
			want: []string{
				"create shop-nodes-blue of blue: 2", "update shop-nodes-2 of default: 11", "update shop-nodes of default: 1",
			},
		},
		"new endpoints are sorted by address": {
			most:    2,
			desired: slices.Concat(testEndpoints("", 3, 1), testEndpoints("", 1, 1), testEndpoints("", 2, 1)),
			want:    []string{"create shop-nodes of default: 1 2", "create shop-nodes-2 of default: 3"},
		},
		"moving endpoints are sorted by address": {
			most:     2,
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 5)},
			desired:  slices.Concat(testEndpoints("", 5, 1), testEndpoints("", 3, 1), testEndpoints("", 4, 1), testEndpoints("", 1, 2)),
			want:     []string{"create shop-nodes-2 of default: 3 4", "create shop-nodes-3 of default: 5", "update shop-nodes of default: 1 2"},
		},
		"the fullest changing slice is filled first": {
			most:     10,
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 5), testSlice(b, "default", 11, 8)},
			desired:  withOtherZone(slices.Concat(testEndpoints("", 1, 5), testEndpoints("", 11, 8), testEndpoints("", 21, 6)), 0, 5),
			want: []string{
				"update shop-nodes of default: 1 2 3 4 5 23 24 25 26", "update shop-nodes-2 of default: 11 12 13 14 15 16 17 18 21 22",
			},
		},
		"new endpoints go into a slice that releases endpoints": {
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 2)},
			desired:  slices.Concat(testEndpoints("", 1, 1), testEndpoints("blue", 2, 1), testEndpoints("", 11, 1)),
			want:     []string{"create shop-nodes-blue of blue: 2", "update shop-nodes of default: 1 11"},
		},
		"a slice can be filled to the limit": {
			most:     10,
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 8)},
			desired:  testEndpoints("", 1, 10),
			want:     []string{"update shop-nodes of default: 1 2 3 4 5 6 7 8 9 10"},
		},
		"new endpoints go into the fullest slice with room": {
			most:     4,
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 1), testSlice(b, "default", 11, 3), testSlice("shop-nodes-3", "default", 21, 2)},
			desired:  slices.Concat(testEndpoints("", 1, 1), testEndpoints("", 11, 3), testEndpoints("", 21, 2), testEndpoints("", 31, 1)),
			want:     []string{"update shop-nodes-2 of default: 11 12 13 31"},
		},
		"of two equally full slices the first gains endpoints": {
			most:     4,
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 2), testSlice(b, "default", 11, 2)},
			desired:  slices.Concat(testEndpoints("", 1, 2), testEndpoints("", 11, 2), testEndpoints("", 31, 1)),
			want:     []string{"update shop-nodes of default: 1 2 31"},
		},
		"the default source gets the first name": {
			desired: slices.Concat(testEndpoints("blue", 1, 1), testEndpoints("", 2, 1)),
			want:    []string{"create shop-nodes of default: 2", "create shop-nodes-blue of blue: 1"},
		},
		"a single source gets the first name": {
			desired: testEndpoints("blue", 1, 1),
			want:    []string{"create shop-nodes of blue: 1"},
		},
		"the slice with the first name keeps a duplicate": {
			existing: []*discoveryv1.EndpointSlice{testSlice("older", "default", 1, 1), testSlice(a, "default", 1, 1)},
			desired:  testEndpoints("", 1, 1),
			want:     []string{"delete older"},
		},
		"duplicates, slices in another order": {
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 1), testSlice("older", "default", 1, 1)},
			desired:  testEndpoints("", 1, 1),
			want:     []string{"delete older"},
		},
		"a slice that lists all that another one has is not written": { // as after a plan that was carried out in part
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 1), withEndpoint(testSlice(b, "default", 11, 2), withOtherZone(testEndpoints("", 1, 1), 0)[0])},
			desired:  withOtherZone(slices.Concat(testEndpoints("", 1, 1), testEndpoints("", 11, 2)), 0),
			want:     []string{"delete shop-nodes"},
		},
		"nor one that lists it in another order": {
			existing: []*discoveryv1.EndpointSlice{
				testSlice(a, "default", 1, 2),
				withEndpoint(withEndpoint(testSlice(b, "default", 11, 3), testEndpoints("", 2, 1)[0]), withOtherZone(testEndpoints("", 1, 1), 0)[0]),
			},
			desired: withOtherZone(slices.Concat(testEndpoints("", 1, 2), testEndpoints("", 11, 3)), 0),
			want:    []string{"delete shop-nodes"},
		},
		"an emptied slice is reused for another source": {
			existing: []*discoveryv1.EndpointSlice{testSlice(a, "default", 1, 1), testSlice(b, "old", 11, 1)},
			desired:  slices.Concat(testEndpoints("", 1, 1), testEndpoints("blue", 21, 1)),
			want:     []string{"update shop-nodes-2 of blue: 21"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := testTarget(0)
			d.Endpoints, d.MaxPerSlice = c.desired, c.most
			if diff := cmp.Diff(c.want, describePlan(Compute(d, c.existing))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The address type of a slice is immutable, and an FQDN slice may have a name that parses as an address.
func TestDeletesFQDNSlice(t *testing.T) {
	was := testSlice("shop-nodes", "old", 1, 1)
	was.AddressType = discoveryv1.AddressTypeFQDN
	d := testTarget(1)
	if diff := cmp.Diff(
		[]string{"create shop-nodes-2 of default: 1", "delete shop-nodes"},
		describePlan(Compute(d, []*discoveryv1.EndpointSlice{was})),
	); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWritesSliceThatGainsReadyEndpointFirst(t *testing.T) {
	for name, other := range map[string]struct{ before, after Endpoint }{
		"another becomes not ready":        {Endpoint{Ready: true}, Endpoint{}},
		"a not ready one changes its zone": {Endpoint{}, Endpoint{Zone: "a"}},
		"a ready one changes its zone":     {Endpoint{Ready: true}, Endpoint{Ready: true, Zone: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := testTarget(4)
			d.MaxPerSlice = 2
			addr := d.Endpoints[0].Address
			d.Endpoints[0], d.Endpoints[2].Ready = other.before, false
			d.Endpoints[0].Address = addr
			c := appliedCluster(t, d)
			d.Endpoints = append(slices.Clone(d.Endpoints), readyEndpoint("10.0.0.5")) // none of the slices has room for it
			d.Endpoints[0], d.Endpoints[2].Ready, d.Endpoints[3].Zone = other.after, true, "a"
			d.Endpoints[0].Address = addr
			want := []string{
				"create shop-nodes-3 of default: 5",
				"update shop-nodes-2 of default: 3 4",
				"update shop-nodes of default: 1 2",
			}
			if diff := cmp.Diff(want, describePlan(Compute(d, c.slices))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFamiliesAreIndependent(t *testing.T) {
	d := testTarget(1)
	d.Families = append(d.Families, discoveryv1.AddressTypeIPv6)
	v6 := d
	v6.Endpoints = []Endpoint{readyEndpoint("fd00::1")}

	t.Run("the first name is for the first family", func(t *testing.T) {
		if diff := cmp.Diff([]string{"shop-nodes-ipv6"}, sliceNames(Compute(v6, nil).Create)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("the last slice of each is emptied, and stays", func(t *testing.T) {
		both := d
		both.Endpoints = slices.Concat(d.Endpoints, v6.Endpoints)
		plan := Compute(d, appliedCluster(t, both).slices)
		checkCounts(t, plan, 0, 1, 0)
		if s := plan.Update[0]; s.Name != "shop-nodes-ipv6" || len(s.Endpoints) > 0 {
			t.Errorf("wrote %s with %d endpoints", s.Name, len(s.Endpoints))
		}
	})
}

func TestNamesAreValid(t *testing.T) {
	for value, want := range map[string]string{"azAZ09": "azaz09", "a`{/:@[z": "a------z", "_a.b_": "a-b"} {
		if got := toNamePart(value); got != want {
			t.Errorf("%s in a name: got %s, want %s", value, got, want)
		}
	}
	long := strings.Repeat("a", maxNameLength)
	for first, want := range map[string]string{long: long, long + "a": long} {
		d := testTarget(1)
		d.FirstName = first
		if diff := cmp.Diff([]string{want}, sliceNames(Compute(d, nil).Create)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestPlanCountsWrites(t *testing.T) {
	of := func(n int) []*discoveryv1.EndpointSlice { return make([]*discoveryv1.EndpointSlice, n) }
	for _, c := range []struct {
		plan Plan
		want int
	}{{Plan{}, 0}, {Plan{Delete: of(1)}, 1}, {Plan{of(1), of(2), of(4)}, 7}} {
		if got := c.plan.Writes(); got != c.want || c.plan.Empty() != (c.want == 0) {
			t.Errorf("%d writes, empty %t; want %d", got, c.plan.Empty(), c.want)
		}
	}
}

func (d Desired) newSlice(name string, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: d.Namespace}, AddressType: family}
}
