package roster

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// claim is what the current data gives a node.
type claim struct {
	Node      string
	State     NodeState
	Addresses addrPair
	Excluded  bool
}

func claimOf(node string, state NodeState, addresses ...string) claim {
	return claim{Node: node, State: state, Addresses: pairOf(addrs(addresses...))}
}

// claimed is an assigner with its members.
type claimed struct {
	*assigner

	members map[string]*member
	decided []string // by the last settle
}

func newClaimed() *claimed { return &claimed{assigner: newAssigner(), members: map[string]*member{}} }

func (a *claimed) claim(claims []claim) {
	for _, c := range claims {
		m := a.members[c.Node]
		if m == nil {
			m = &member{}
			a.members[c.Node] = m
		}
		m.Node = &Node{Name: c.Node, State: c.State}
		if c.Excluded {
			m.Excluded = ControlPlane
		}
		a.assigner.claim(m, c.Addresses)
	}
	a.settle()
}

func (a *claimed) release(name string) {
	if m := a.members[name]; m != nil {
		a.assigner.release(m)
		delete(a.members, name)
	}
	a.settle()
}

func (a *claimed) settle() {
	a.decided = nil
	a.assigner.settle(func(m *member) { a.decided = append(a.decided, m.Name) })
}

func (a *claimed) assignments() map[string]string {
	all := map[string]string{}
	for name, m := range a.members {
		if !m.assigned.isEmpty() {
			all[name] = fmt.Sprint(m.assigned.list())
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
			a := newClaimed()
			for _, claims := range tc.steps {
				a.claim(claims)
			}
			if d := cmp.Diff(tc.want, a.assignments()); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestReleasedAddressGoesToReadyContender(t *testing.T) {
	a := newClaimed()
	a.claim([]claim{claimOf("a", Ready, "10.0.0.1")})
	a.claim([]claim{claimOf("aa", NotReady, "10.0.0.1"), claimOf("b", Ready, "10.0.0.1")})
	if a.release("a"); !slices.Contains(a.decided, "b") {
		t.Errorf("decided: %v", a.decided)
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
		a, twin := newClaimed(), newClaimed()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "release") == 0 {
				name := names.Draw(t, "name")
				a.release(name)
				twin.release(name)
			} else {
				claims := map[string]claim{}
				for range rapid.IntRange(1, 4).Draw(t, "claims") {
					c := claimOf(
						names.Draw(t, "node"),
						rapid.SampledFrom([]NodeState{Ready, Draining, NotReady}).Draw(t, "state"),
						rapid.SliceOfN(rapid.SampledFrom(addresses), 0, 2).Draw(t, "addresses")...)
					if c.Excluded = rapid.IntRange(0, 5).Draw(t, "excluded") == 0; c.Excluded {
						c.Addresses = addrPair{}
					}
					claims[c.Node] = c
				}
				sorted := slices.Sorted(maps.Keys(claims))
				var forward, backward []claim
				for _, name := range sorted {
					forward, backward = append(forward, claims[name]), append([]claim{claims[name]}, backward...)
				}
				a.claim(forward)
				twin.claim(backward)
			}
			checkConsistent(t, a)
			if d := cmp.Diff(a.assignments(), twin.assignments()); d != "" {
				t.Fatalf("another order of claims, other assignments:\n%s", d)
			}
		}
	})
}

func checkConsistent(t *rapid.T, a *claimed) {
	for address, m := range a.owners {
		if a.members[m.Name] != m || m.assigned[familyOf(address)] != address {
			t.Fatalf("%s is owned by %s, which does not have it", address, m.Name)
		}
	}
	for name, m := range a.members {
		for _, address := range m.assigned.list() {
			if a.owners[address] != m {
				t.Fatalf("%s has %s and does not own it", name, address)
			}
		}
		for _, address := range m.claimed.list() {
			if !slices.Contains(a.claimants[address], m) {
				t.Fatalf("the claim of %s on %s is not known", name, address)
			}
		}
	}
	for address, all := range a.claimants {
		for _, m := range all {
			if owner := a.owners[address]; a.members[m.Name] != m || owner == nil || owner != m && byPriority(m, owner) < 0 {
				t.Fatalf("%s waits for %s in vain, owned by %+v", m.Name, address, owner)
			}
		}
	}
}
