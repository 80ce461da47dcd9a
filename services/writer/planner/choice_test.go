package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// listing is a slice of ours of one source, with so many ready endpoints from a number on.
func listing(name, source string, from, n int) *discoveryv1.EndpointSlice {
	d := target(0)
	s := d.blank(name, discoveryv1.AddressTypeIPv4)
	s.UID, s.ResourceVersion = types.UID(name), "1"
	s.Labels, s.Ports, s.OwnerReferences = d.labels(&slot{was: &discoveryv1.EndpointSlice{}, group: &group{source: source}}), d.Ports, d.owners(nil)
	for _, e := range some("", from, n) {
		s.Endpoints = append(s.Endpoints, written(&e))
	}
	return s
}

func some(source string, from, n int) []Endpoint {
	var all []Endpoint
	for i := range n {
		e := ready(fmt.Sprintf("10.0.0.%d", from+i))
		e.Source = source
		all = append(all, e)
	}
	return all
}

// altered has the zone of an endpoint be another one, so that its slice is written.
func altered(all []Endpoint, at ...int) []Endpoint {
	for _, i := range at {
		all[i].Zone = "a"
	}
	return all
}

// outcome is what a plan does, request by request: the slice, its source, and what it lists then.
func outcome(p Plan) []string {
	var all []string
	for _, step := range []struct {
		verb   string
		slices []*discoveryv1.EndpointSlice
	}{{"create", p.Create}, {"update", p.Update}, {"delete", p.Delete}} {
		for _, s := range step.slices {
			line := step.verb + " " + s.Name
			if step.verb != "delete" {
				line += " of " + sourceOf(s) + ":"
				for _, e := range s.Endpoints {
					line += " " + e.Addresses[0][len("10.0.0."):]
				}
			}
			all = append(all, line)
		}
	}
	return all
}

func TestEveryEndpointFindsItsSlice(t *testing.T) {
	const a, b = "shop-nodes", "shop-nodes-2"
	for name, c := range map[string]struct {
		most     int
		existing []*discoveryv1.EndpointSlice
		desired  []Endpoint
		want     []string
	}{
		"a slice stays its source's as long as one of its endpoints does": {
			existing: []*discoveryv1.EndpointSlice{listing(a, "blue", 1, 2)},
			desired:  slices.Concat(some("", 1, 1), some("blue", 2, 1)),
			want:     []string{"create shop-nodes-2 of default: 1", "update shop-nodes of blue: 2"},
		},
		"what another slice keeps does not choose the source of one that keeps nothing": {
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 1), listing(b, "old", 1, 2)},
			desired:  slices.Concat(some("", 1, 1), some("blue", 2, 1)),
			want:     []string{"update shop-nodes-2 of blue: 2"},
		},
		"the emptiest of those that change is given up": {
			most:     10,
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 2), listing(b, "default", 11, 6)},
			desired:  altered(slices.Concat(some("", 1, 2), some("", 11, 6)), 0, 2),
			want:     []string{"update shop-nodes-2 of default: 11 12 13 14 15 16 1 2", "delete shop-nodes"},
		},
		"none is given up if the others have no room for what is new as well": {
			most:     10,
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 5), listing(b, "default", 11, 5)},
			desired:  altered(slices.Concat(some("", 1, 5), some("", 11, 5), some("", 21, 3)), 0, 5),
			want:     []string{"update shop-nodes of default: 1 2 3 4 5 21 22 23", "update shop-nodes-2 of default: 11 12 13 14 15"},
		},
		"what is new to another source takes no room": {
			most:     10,
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 6), listing(b, "default", 11, 2)},
			desired:  altered(slices.Concat(some("", 1, 6), some("", 11, 2), some("blue", 21, 4)), 0, 6),
			want: []string{
				"create shop-nodes-blue of blue: 21 22 23 24", "update shop-nodes of default: 1 2 3 4 5 6 11 12", "delete shop-nodes-2",
			},
		},
		"slices of two sources do not become one": {
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 2), listing(b, "blue", 11, 2)},
			desired:  altered(slices.Concat(some("", 1, 2), some("blue", 11, 2)), 0, 2),
			want:     []string{"update shop-nodes of default: 1 2", "update shop-nodes-2 of blue: 11 12"},
		},
		"none is given up while another gives something away": {
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 2), listing(b, "default", 11, 1)},
			desired:  altered(slices.Concat(some("", 1, 1), some("blue", 2, 1), some("", 11, 1)), 2),
			want: []string{
				"create shop-nodes-blue of blue: 2", "update shop-nodes-2 of default: 11", "update shop-nodes of default: 1",
			},
		},
		"what is new comes by address, however it is given": {
			most:    2,
			desired: slices.Concat(some("", 3, 1), some("", 1, 1), some("", 2, 1)),
			want:    []string{"create shop-nodes of default: 1 2", "create shop-nodes-2 of default: 3"},
		},
		"what has to move comes by address, however it is given": {
			most:     2,
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 5)},
			desired:  slices.Concat(some("", 5, 1), some("", 3, 1), some("", 4, 1), some("", 1, 2)),
			want:     []string{"create shop-nodes-2 of default: 3 4", "create shop-nodes-3 of default: 5", "update shop-nodes of default: 1 2"},
		},
		"of those that are written the fullest is filled first": {
			most:     10,
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 5), listing(b, "default", 11, 8)},
			desired:  altered(slices.Concat(some("", 1, 5), some("", 11, 8), some("", 21, 6)), 0, 5),
			want: []string{
				"update shop-nodes of default: 1 2 3 4 5 23 24 25 26", "update shop-nodes-2 of default: 11 12 13 14 15 16 17 18 21 22",
			},
		},
		"what is new goes into a slice that gives something away": {
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 2)},
			desired:  slices.Concat(some("", 1, 1), some("blue", 2, 1), some("", 11, 1)),
			want:     []string{"create shop-nodes-blue of blue: 2", "update shop-nodes of default: 1 11"},
		},
		"a slice may become full to the last place": {
			most:     10,
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 8)},
			desired:  some("", 1, 10),
			want:     []string{"update shop-nodes of default: 1 2 3 4 5 6 7 8 9 10"},
		},
		"what is new goes into the fullest slice that has room": {
			most:     4,
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 1), listing(b, "default", 11, 3), listing("shop-nodes-3", "default", 21, 2)},
			desired:  slices.Concat(some("", 1, 1), some("", 11, 3), some("", 21, 2), some("", 31, 1)),
			want:     []string{"update shop-nodes-2 of default: 11 12 13 31"},
		},
		"of two that are as full it goes into the first": {
			most:     4,
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 2), listing(b, "default", 11, 2)},
			desired:  slices.Concat(some("", 1, 2), some("", 11, 2), some("", 31, 1)),
			want:     []string{"update shop-nodes of default: 1 2 31"},
		},
		"the default source has the first name, whoever is given first": {
			desired: slices.Concat(some("blue", 1, 1), some("", 2, 1)),
			want:    []string{"create shop-nodes of default: 2", "create shop-nodes-blue of blue: 1"},
		},
		"the first name is for whatever source is there": {
			desired: some("blue", 1, 1),
			want:    []string{"create shop-nodes of blue: 1"},
		},
		"of what is listed twice the slice of the first name keeps it": {
			existing: []*discoveryv1.EndpointSlice{listing("older", "default", 1, 1), listing(a, "default", 1, 1)},
			desired:  some("", 1, 1),
			want:     []string{"delete older"},
		},
		"in whatever order the slices are": {
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 1), listing("older", "default", 1, 1)},
			desired:  some("", 1, 1),
			want:     []string{"delete older"},
		},
		"a slice that is left empty serves another source": {
			existing: []*discoveryv1.EndpointSlice{listing(a, "default", 1, 1), listing(b, "old", 11, 1)},
			desired:  slices.Concat(some("", 1, 1), some("blue", 21, 1)),
			want:     []string{"update shop-nodes-2 of blue: 21"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := target(0)
			d.Endpoints, d.MaxPerSlice = c.desired, c.most
			if diff := cmp.Diff(c.want, outcome(Make(d, c.existing))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A slice of names may hold one that looks like an address, and its type can never be altered.
func TestASliceOfNamesIsDeletedWhateverItLists(t *testing.T) {
	was := listing("shop-nodes", "old", 1, 1)
	was.AddressType = discoveryv1.AddressTypeFQDN
	d := target(1)
	if diff := cmp.Diff([]string{"create shop-nodes-2 of default: 1", "delete shop-nodes"}, outcome(Make(d, []*discoveryv1.EndpointSlice{was}))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever else is written, and in whatever order the slices are.
func TestASliceThatMakesAnEndpointReadyIsWrittenFirst(t *testing.T) {
	for name, other := range map[string]struct{ before, after Endpoint }{
		"another goes out":                     {Endpoint{Ready: true}, Endpoint{}},
		"another that is out changes its zone": {Endpoint{}, Endpoint{Zone: "a"}},
		"another that is in changes its zone":  {Endpoint{Ready: true}, Endpoint{Ready: true, Zone: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := target(4)
			d.MaxPerSlice = 2
			addr := d.Endpoints[0].Address
			d.Endpoints[0], d.Endpoints[2].Ready = other.before, false
			d.Endpoints[0].Address = addr
			c := settled(t, d)
			d.Endpoints = append(slices.Clone(d.Endpoints), ready("10.0.0.5")) // for which none of them has room
			d.Endpoints[0], d.Endpoints[2].Ready, d.Endpoints[3].Zone = other.after, true, "a"
			d.Endpoints[0].Address = addr
			want := []string{"create shop-nodes-3 of default: 5", "update shop-nodes-2 of default: 3 4", "update shop-nodes of default: 1 2"}
			if diff := cmp.Diff(want, outcome(Make(d, c.slices))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOneFamilyMindsNotTheOther(t *testing.T) {
	d := target(1)
	d.Families = append(d.Families, discoveryv1.AddressTypeIPv6)
	v6 := d
	v6.Endpoints = []Endpoint{ready("fd00::1")}

	t.Run("the first name is for the first family", func(t *testing.T) {
		if diff := cmp.Diff([]string{"shop-nodes-ipv6"}, nameList(Make(v6, nil).Create)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("the last slice of each is emptied, and stays", func(t *testing.T) {
		both := d
		both.Endpoints = slices.Concat(d.Endpoints, v6.Endpoints)
		plan := Make(d, settled(t, both).slices)
		counts(t, plan, 0, 1, 0)
		if s := plan.Update[0]; s.Name != "shop-nodes-ipv6" || len(s.Endpoints) > 0 {
			t.Errorf("written is %s with %d endpoints", s.Name, len(s.Endpoints))
		}
	})
}

func TestNamesAreWhatTheAPIServerTakes(t *testing.T) {
	for value, want := range map[string]string{"azAZ09": "azaz09", "a`{/:@[z": "a------z", "_a.b_": "a-b"} {
		if got := subdomain(value); got != want {
			t.Errorf("%s in a name is %s, want %s", value, got, want)
		}
	}
	long := strings.Repeat("a", maxName)
	for first, want := range map[string]string{long: long, long + "a": long} {
		d := target(1)
		d.FirstName = first
		if diff := cmp.Diff([]string{want}, nameList(Make(d, nil).Create)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAPlanCountsAllThatItWrites(t *testing.T) {
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
