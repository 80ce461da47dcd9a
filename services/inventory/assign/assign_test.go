package assign

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func claim(node string, state source.NodeState, addresses ...string) Claim {
	c := Claim{Node: node, State: state}
	for _, text := range addresses {
		a := netip.MustParseAddr(text)
		c.Addresses[resolve.Family(a)] = a
	}
	return c
}

func (a *Assigner) assignments() map[string]string {
	all := map[string]string{}
	for name, c := range a.nodes {
		if !c.assigned.Empty() {
			all[name] = fmt.Sprint(c.assigned.List())
		}
	}
	return all
}

func TestClaims(t *testing.T) {
	const x, y = "10.0.0.1", "10.0.0.2"
	ready, notReady := source.Ready, source.NotReady
	for _, tc := range []struct {
		name  string
		steps [][]Claim
		want  map[string]string
	}{
		{"of two READY nodes, the name decides", [][]Claim{{claim("b", ready, x)}, {claim("a", ready, x)}}, map[string]string{"a": "[10.0.0.1]"}},
		{"… in any order", [][]Claim{{claim("a", ready, x)}, {claim("b", ready, x)}}, map[string]string{"a": "[10.0.0.1]"}},
		{"… and at once", [][]Claim{{claim("b", ready, x), claim("a", ready, x)}}, map[string]string{"a": "[10.0.0.1]"}},
		{"READY decides before the name", [][]Claim{{claim("a", notReady, x)}, {claim("b", ready, x)}}, map[string]string{"b": "[10.0.0.1]"}},
		{"… in any order", [][]Claim{{claim("b", ready, x)}, {claim("a", notReady, x)}}, map[string]string{"b": "[10.0.0.1]"}},
		{"… and at once", [][]Claim{{claim("a", notReady, x), claim("b", ready, x)}}, map[string]string{"b": "[10.0.0.1]"}},
		{"a claim replaces both families", [][]Claim{{claim("a", ready, x, "fd00::1")}, {claim("a", ready, y)}}, map[string]string{"a": "[10.0.0.2]"}},
		{"… also when the family changes", [][]Claim{{claim("a", ready, x)}, {claim("a", ready, "fd00::1")}}, map[string]string{"a": "[fd00::1]"}},
		{"… and frees the other one", [][]Claim{
			{claim("a", ready, x, "fd00::1")}, {claim("b", ready, "fd00::1")}, {claim("a", ready, y)},
		}, map[string]string{"a": "[10.0.0.2]", "b": "[fd00::1]"}},
		{"a claim that is not granted replaces nothing", [][]Claim{
			{claim("a", ready, x), claim("b", ready, y)}, {claim("b", ready, x)},
		}, map[string]string{"a": "[10.0.0.1]", "b": "[10.0.0.2]"}},
		{"an owner without a claim keeps its address", [][]Claim{{claim("a", ready, x)}, {claim("a", ready)}}, map[string]string{"a": "[10.0.0.1]"}},
		{"an owner without a claim gives way", [][]Claim{{claim("a", ready, x)}, {claim("a", ready), claim("b", notReady, x)}}, map[string]string{"b": "[10.0.0.1]"}},
		{"an excluded owner gives way", [][]Claim{{claim("a", ready, x)}, {claim("b", ready, x)}, {{Node: "a", State: ready, Excluded: true}}}, map[string]string{"b": "[10.0.0.1]"}},
		{"two owners swap", [][]Claim{{claim("a", ready, x), claim("b", ready, y)}, {claim("a", ready, y), claim("b", ready, x)}}, map[string]string{"a": "[10.0.0.2]", "b": "[10.0.0.1]"}},
		{"an earlier contender goes before a new one when the owner gives way", [][]Claim{
			{claim("c", ready, x)},
			{claim("d", ready, x)},
			{claim("e", ready, x), claim("c", notReady, x)},
		}, map[string]string{"d": "[10.0.0.1]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := New()
			for _, claims := range tc.steps {
				a.Claim(claims)
			}
			if d := cmp.Diff(tc.want, a.assignments()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestReleasedAddressGoesToReadyContender(t *testing.T) {
	a := New()
	a.Claim([]Claim{claim("a", source.Ready, "10.0.0.1")})
	a.Claim([]Claim{claim("aa", source.NotReady, "10.0.0.1"), claim("b", source.Ready, "10.0.0.1")})
	if changed := a.Release("a"); !slices.Contains(changed, "b") {
		t.Errorf("changed: %v", changed)
	}
	if d := cmp.Diff(map[string]string{"b": "[10.0.0.1]"}, a.assignments()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Whatever is claimed and released in whatever order: one address has one node, every contender has
// another owner to wait for, no owner must give way any more, and the order of claims does not matter.
func TestAssignmentsAreConsistent(t *testing.T) {
	addresses := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2"}
	names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	rapid.Check(t, func(t *rapid.T) {
		a, twin := New(), New()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "release") == 0 {
				name := names.Draw(t, "name")
				a.Release(name)
				twin.Release(name)
			} else {
				claims := map[string]Claim{}
				for range rapid.IntRange(1, 4).Draw(t, "claims") {
					c := claim(
						names.Draw(t, "node"),
						rapid.SampledFrom([]source.NodeState{source.Ready, source.Draining, source.NotReady}).Draw(t, "state"),
						rapid.SliceOfN(rapid.SampledFrom(addresses), 0, 2).Draw(t, "addresses")...)
					if c.Excluded = rapid.IntRange(0, 5).Draw(t, "excluded") == 0; c.Excluded {
						c.Addresses = resolve.AddrPair{}
					}
					claims[c.Node] = c
				}
				sorted := slices.Sorted(maps.Keys(claims))
				var forward, backward []Claim
				for _, name := range sorted {
					forward, backward = append(forward, claims[name]), append([]Claim{claims[name]}, backward...)
				}
				a.Claim(forward)
				twin.Claim(backward)
			}
			checkConsistent(t, a)
			if d := cmp.Diff(a.assignments(), twin.assignments()); d != "" {
				t.Fatalf("another order of claims, other assignments:\n%s", d)
			}
		}
	})
}

func checkConsistent(t *rapid.T, a *Assigner) {
	for address, c := range a.owners {
		if a.nodes[c.Node] != c || c.assigned[resolve.Family(address)] != address {
			t.Fatalf("%s is owned by %s, which does not have it", address, c.Node)
		}
	}
	for name, c := range a.nodes {
		for _, address := range c.assigned.List() {
			if a.owners[address] != c {
				t.Fatalf("%s has %s and does not own it", name, address)
			}
		}
	}
	for address, contenders := range a.contenders {
		owner := a.owners[address]
		for name, c := range contenders {
			if a.nodes[name] != c || owner == nil || owner == c || mustYield(owner, c, address) {
				t.Fatalf("%s waits for %s in vain, owned by %+v", name, address, owner)
			}
		}
	}
}
