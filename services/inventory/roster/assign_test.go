package roster

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func claimOf(node string, state NodeState, addresses ...string) claim {
	c := claim{Node: node, State: state}
	for _, text := range addresses {
		a := netip.MustParseAddr(text)
		c.Addresses[Family(a)] = a
	}
	return c
}

func (a *assigner) assignments() map[string]string {
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
	ready, notReady := Ready, NotReady
	for _, tc := range []struct {
		name  string
		steps [][]claim
		want  map[string]string
	}{
		{"of two READY nodes, the name decides", [][]claim{{claimOf("b", ready, x)}, {claimOf("a", ready, x)}}, map[string]string{"a": "[10.0.0.1]"}},
		{"… in any order", [][]claim{{claimOf("a", ready, x)}, {claimOf("b", ready, x)}}, map[string]string{"a": "[10.0.0.1]"}},
		{"… and at once", [][]claim{{claimOf("b", ready, x), claimOf("a", ready, x)}}, map[string]string{"a": "[10.0.0.1]"}},
		{"READY decides before the name", [][]claim{{claimOf("a", notReady, x)}, {claimOf("b", ready, x)}}, map[string]string{"b": "[10.0.0.1]"}},
		{"… in any order", [][]claim{{claimOf("b", ready, x)}, {claimOf("a", notReady, x)}}, map[string]string{"b": "[10.0.0.1]"}},
		{"… and at once", [][]claim{{claimOf("a", notReady, x), claimOf("b", ready, x)}}, map[string]string{"b": "[10.0.0.1]"}},
		{"a claim replaces both families", [][]claim{{claimOf("a", ready, x, "fd00::1")}, {claimOf("a", ready, y)}}, map[string]string{"a": "[10.0.0.2]"}},
		{"… also when the family changes", [][]claim{{claimOf("a", ready, x)}, {claimOf("a", ready, "fd00::1")}}, map[string]string{"a": "[fd00::1]"}},
		{"… and frees the other one", [][]claim{
			{claimOf("a", ready, x, "fd00::1")}, {claimOf("b", ready, "fd00::1")}, {claimOf("a", ready, y)},
		}, map[string]string{"a": "[10.0.0.2]", "b": "[fd00::1]"}},
		{"a claim that is not granted replaces nothing", [][]claim{
			{claimOf("a", ready, x), claimOf("b", ready, y)}, {claimOf("b", ready, x)},
		}, map[string]string{"a": "[10.0.0.1]", "b": "[10.0.0.2]"}},
		{"an owner without a claim keeps its address", [][]claim{{claimOf("a", ready, x)}, {claimOf("a", ready)}}, map[string]string{"a": "[10.0.0.1]"}},
		{"an owner without a claim gives way", [][]claim{{claimOf("a", ready, x)}, {claimOf("a", ready), claimOf("b", notReady, x)}}, map[string]string{"b": "[10.0.0.1]"}},
		{"an excluded owner gives way", [][]claim{{claimOf("a", ready, x)}, {claimOf("b", ready, x)}, {{Node: "a", State: ready, Excluded: true}}}, map[string]string{"b": "[10.0.0.1]"}},
		{"two owners swap", [][]claim{{claimOf("a", ready, x), claimOf("b", ready, y)}, {claimOf("a", ready, y), claimOf("b", ready, x)}}, map[string]string{"a": "[10.0.0.2]", "b": "[10.0.0.1]"}},
		{"an earlier contender goes before a new one when the owner gives way", [][]claim{
			{claimOf("c", ready, x)},
			{claimOf("d", ready, x)},
			{claimOf("e", ready, x), claimOf("c", notReady, x)},
		}, map[string]string{"d": "[10.0.0.1]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAssigner()
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
	a := newAssigner()
	a.Claim([]claim{claimOf("a", Ready, "10.0.0.1")})
	a.Claim([]claim{claimOf("aa", NotReady, "10.0.0.1"), claimOf("b", Ready, "10.0.0.1")})
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
		a, twin := newAssigner(), newAssigner()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "release") == 0 {
				name := names.Draw(t, "name")
				a.Release(name)
				twin.Release(name)
			} else {
				claims := map[string]claim{}
				for range rapid.IntRange(1, 4).Draw(t, "claims") {
					c := claimOf(
						names.Draw(t, "node"),
						rapid.SampledFrom([]NodeState{Ready, Draining, NotReady}).Draw(t, "state"),
						rapid.SliceOfN(rapid.SampledFrom(addresses), 0, 2).Draw(t, "addresses")...)
					if c.Excluded = rapid.IntRange(0, 5).Draw(t, "excluded") == 0; c.Excluded {
						c.Addresses = AddrPair{}
					}
					claims[c.Node] = c
				}
				sorted := slices.Sorted(maps.Keys(claims))
				var forward, backward []claim
				for _, name := range sorted {
					forward, backward = append(forward, claims[name]), append([]claim{claims[name]}, backward...)
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

func checkConsistent(t *rapid.T, a *assigner) {
	for address, c := range a.owners {
		if a.nodes[c.Node] != c || c.assigned[Family(address)] != address {
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
