package roster

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// step is one event of a drawn history, applied to any number of rosters alike.
type step func(r *Roster, now time.Time)

// events draws what happens: few names, servers and addresses, so that they collide.
func events() *rapid.Generator[step] {
	ids := []string{s1, s2, s3}
	ips := addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "192.0.2.1")
	names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	some := rapid.SliceOfN(rapid.SampledFrom(ips), 0, 3)
	candidate := rapid.Custom(func(t *rapid.T) Candidate {
		c := Candidate{
			Name:        names.Draw(t, "name"),
			UID:         rapid.SampledFrom([]string{"1", "1", "1", "2"}).Draw(t, "uid"),
			ProviderID:  rapid.SampledFrom([]string{"", "ionos://" + s1, "ionos://" + s2, "ionos:///" + dc + "/" + s3, "?"}).Draw(t, "provider"),
			SystemUUID:  rapid.SampledFrom([]string{"", "", s1, s2}).Draw(t, "uuid"),
			State:       rapid.SampledFrom([]State{Ready, Ready, Draining, NotReady}).Draw(t, "state"),
			InternalIPs: some.Draw(t, "ips"),
			Excluded:    rapid.SampledFrom([]Reason{0, 0, 0, 0, ControlPlane}).Draw(t, "excluded"),
		}
		return c
	})
	cloudly := rapid.Custom(func(t *rapid.T) Listing {
		var l Listing
		for _, id := range ids {
			switch rapid.IntRange(0, 5).Draw(t, "fate") {
			case 0:
			case 1:
				l.Invalid = map[string]string{id: "bad"}
			default:
				s := Server{ID: id, Datacenter: dc, Name: names.Draw(t, "server")}
				s.NICs = []NIC{{ID: "n", LAN: "1", Addresses: some.Draw(t, "borne")}}
				l.Servers = append(l.Servers, s)
			}
		}
		l.Failover = rapid.SliceOfN(rapid.SampledFrom(ips), 0, 1).Draw(t, "failover")
		return l
	})
	return rapid.Custom(func(t *rapid.T) step {
		c, l, name := candidate.Draw(t, "node"), cloudly.Draw(t, "cloud"), names.Draw(t, "which")
		rv := rapid.Uint64Range(1, 20).Draw(t, "rv")
		ago := time.Duration(rapid.IntRange(0, 10).Draw(t, "ago")) * time.Second
		look := rapid.SampledFrom([]Look{Light, Full}).Draw(t, "look")
		switch rapid.IntRange(0, 9).Draw(t, "event") {
		case 0, 1, 2:
			return func(r *Roster, now time.Time) { r.Upsert(now, c) }
		case 3:
			return func(r *Roster, now time.Time) { r.Remove(now, name) }
		case 4, 5:
			return func(r *Roster, now time.Time) { r.Listed(now, now.Add(-ago), l, nil, 0) }
		case 6:
			return func(r *Roster, now time.Time) { r.Looked(now, now.Add(-ago), look, rv, nil) }
		case 7:
			return func(r *Roster, now time.Time) { r.heard(now, now, rv) }
		case 8:
			return func(r *Roster, now time.Time) { r.Doubt(now, int(rv)) }
		}
		return func(r *Roster, now time.Time) { r.Ask(now) }
	})
}

// blunder draws what must take nothing from the roster.
var blunder = rapid.Custom(func(t *rapid.T) step {
	boom := errors.New("boom")
	switch rapid.IntRange(0, 6).Draw(t, "blunder") {
	case 0:
		return func(r *Roster, now time.Time) { r.Listed(now, now, Listing{}, boom, time.Hour) }
	case 1:
		return func(r *Roster, now time.Time) { r.Listed(now, now, Listing{}, nil, 0) }
	case 2:
		return func(r *Roster, now time.Time) {
			r.Listed(now, now, Listing{Invalid: map[string]string{s1: "x", s2: "x", s3: "x"}}, nil, 0)
		}
	case 3:
		return func(r *Roster, now time.Time) {
			r.Listed(now, now, listing(Server{ID: s1}, Server{ID: s2, NICs: []NIC{{}}}), nil, 0)
		}
	case 4:
		return func(r *Roster, now time.Time) { r.Looked(now, now, Full, 0, boom) }
	case 5:
		return func(r *Roster, now time.Time) { r.failed("boom"); r.reckon(now) }
	}
	return func(r *Roster, now time.Time) { r.Ask(now.Add(time.Hour)) }
})

func TestProperties(t *testing.T) {
	for _, resolver := range []Resolver{ByCloud, ByNodeAddress} {
		t.Run(fmt.Sprintf("resolver %d", resolver), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				cfg := Config{Resolver: resolver, CIDRs: cidr}
				r, twin, copied, now := New(cfg), New(cfg), map[string]*Node{}, t0
				seen := uint64(0)
				for range rapid.IntRange(1, 40).Draw(t, "steps") {
					now = now.Add(time.Duration(rapid.IntRange(0, 70).Draw(t, "pass")) * time.Second)
					s := events().Draw(t, "step")
					s(r, now)
					s(twin, now)
					oneAddressOneNode(t, r)
					countsFit(t, r)
					followsByTake(t, r, now, copied)
					st := r.Status(now)
					if st.Observation < seen {
						t.Fatalf("observation %d after %d", st.Observation, seen)
					}
					seen = st.Observation
					if d := cmp.Diff(st, twin.Status(now)); d != "" {
						t.Fatalf("same inputs, other status:\n%s", d)
					}
				}
				if d := cmp.Diff(r.Nodes(), twin.Nodes(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
					t.Fatalf("same inputs, other nodes:\n%s", d)
				}
				if d := cmp.Diff(r.Omitted(), twin.Omitted()); d != "" {
					t.Fatalf("same inputs, other omissions:\n%s", d)
				}
				before := borne(r)
				for range rapid.IntRange(1, 5).Draw(t, "blunders") {
					now = now.Add(time.Second)
					blunder.Draw(t, "blunder")(r, now)
					if d := cmp.Diff(before, borne(r)); d != "" {
						t.Fatalf("an error changed the roster:\n%s", d)
					}
				}
			})
		})
	}
}

func borne(r *Roster) (all []string) {
	for _, n := range r.Nodes() {
		all = append(all, fmt.Sprint(n.Name, n.Addresses))
	}
	return all
}

func oneAddressOneNode(t *rapid.T, r *Roster) {
	of := map[netip.Addr]string{}
	for _, n := range r.Nodes() {
		families := map[bool]bool{}
		for _, a := range n.Addresses {
			if other, ok := of[a]; ok {
				t.Fatalf("%s is borne by %s and %s", a, other, n.Name)
			}
			if families[a.Is4()] {
				t.Fatalf("%s has two addresses of a family: %v", n.Name, n.Addresses)
			}
			of[a], families[a.Is4()] = n.Name, true
		}
		if len(n.Addresses) == 0 {
			t.Fatalf("%s has no address", n.Name)
		}
	}
	for a, m := range r.owners {
		if r.members[m.Name] != m || m.held[family(a)] != a {
			t.Fatalf("%s is owned by %s, who does not have it", a, m.Name)
		}
	}
	for a, ws := range r.waiting {
		for name, m := range ws {
			if r.members[name] != m || r.owners[a] == nil {
				t.Fatalf("%s waits for %s in vain", name, a)
			}
		}
	}
}

func countsFit(t *rapid.T, r *Roster) {
	want := Counts{States: map[State]int{Ready: 0, Draining: 0, NotReady: 0}, Omitted: map[Reason]int{}}
	for w := ControlPlane; w <= InvalidRecord; w++ {
		want.Omitted[w] = 0
	}
	for _, n := range r.Nodes() {
		want.States[n.State]++
	}
	for _, o := range r.Omitted() {
		want.Omitted[o.Reason]++
		if o.Advice == "" && o.Reason != ControlPlane {
			t.Fatalf("%s is left out without advice: %+v", o.Name, o)
		}
	}
	if d := cmp.Diff(want, r.Counts()); d != "" {
		t.Fatalf("counts:\n%s", d)
	}
	eligible := 0
	for _, m := range r.members {
		if m.Excluded == 0 {
			eligible++
		}
	}
	if r.eligible != eligible || r.published != len(r.Nodes()) || len(r.unresolved) != eligible-r.published {
		t.Fatalf("eligible %d, published %d, unresolved %d", r.eligible, r.published, len(r.unresolved))
	}
}

// followsByTake applies what is taken to a copy, which is then the whole roster.
func followsByTake(t *rapid.T, r *Roster, now time.Time, copied map[string]*Node) {
	changes := r.Take()
	for i, c := range changes {
		if i > 0 && changes[i-1].Name >= c.Name {
			t.Fatalf("changes are not sorted, or name one twice: %v", changes)
		}
		if c.Node == nil {
			if copied[c.Name] == nil {
				t.Fatalf("%s is removed, and was never told", c.Name)
			}
			delete(copied, c.Name)
		} else {
			copied[c.Name] = c.Node
		}
	}
	if !r.Status(now).Publishable {
		if changes != nil {
			t.Fatal("changes before the first word")
		}
		return
	}
	if len(copied) != len(r.Nodes()) {
		t.Fatalf("the copy has %d nodes, the roster %d", len(copied), len(r.Nodes()))
	}
	for _, n := range r.Nodes() {
		if c := copied[n.Name]; c != n && !same(c, n) {
			t.Fatalf("the copy has %+v, the roster %+v", c, n)
		}
	}
}
