package roster

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// step is one event of a drawn history, applied to any number of rosters alike.
type step func(r *Roster, now time.Time) []Change

// Few names, servers and addresses, so that they collide.
var (
	ips   = addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "192.0.2.1")
	names = rapid.SampledFrom([]string{"a", "b", "c", "d"})
	some  = rapid.SliceOfN(rapid.SampledFrom(ips), 0, 3)
)

// listings draws what the cloud has.
func drawListing() *rapid.Generator[Listing] {
	return rapid.Custom(func(t *rapid.T) Listing {
		var l Listing
		for _, id := range []string{s1, s2, s3} {
			switch rapid.IntRange(0, 5).Draw(t, "fate") {
			case 0:
			case 1:
				l.Invalid = map[string]string{id: "bad"}
			default:
				s := Server{ID: id, Datacenter: dc, Name: names.Draw(t, "server")}
				s.NICs = []NIC{{ID: "n", LAN: "1", Addresses: some.Draw(t, "addresses")}}
				l.Servers = append(l.Servers, s)
			}
		}
		l.Failover = rapid.SliceOfN(rapid.SampledFrom(ips), 0, 1).Draw(t, "failover")
		return l
	})
}

// events draws what happens.
func events() *rapid.Generator[step] {
	candidate := rapid.Custom(func(t *rapid.T) Node {
		c := Node{
			Name: names.Draw(t, "name"),
			UID:  rapid.SampledFrom([]string{"1", "1", "1", "2"}).Draw(t, "uid"),
			ProviderID: rapid.SampledFrom([]string{"", "ionos://" + s1, "ionos://" + s2, "ionos:///" + dc + "/" + s3, "?"}).
				Draw(t, "provider"),
			SystemUUID: rapid.SampledFrom([]string{"", "", s1, s2}).Draw(t, "uuid"),
			State: rapid.SampledFrom([]NodeState{Ready, Ready, Draining, NotReady}).
				Draw(t, "state"),
			InternalIPs: some.Draw(t, "ips"),
			Excluded:    rapid.SampledFrom([]OmissionReason{0, 0, 0, 0, ControlPlane}).Draw(t, "excluded"),
		}
		return c
	})
	return rapid.Custom(func(t *rapid.T) step {
		c, l, name := candidate.Draw(t, "node"), drawListing().Draw(t, "cloud"), names.Draw(t, "which")
		rv := rapid.Uint64Range(1, 20).Draw(t, "rv")
		ago := time.Duration(rapid.IntRange(0, 10).Draw(t, "ago")) * time.Second
		mode := rapid.SampledFrom([]Verification{LightVerification, FullVerification}).Draw(t, "mode")
		switch rapid.IntRange(0, 8).Draw(t, "event") {
		case 0, 1, 2:
			return apply(func(time.Time) Input { return Input{Source: Update{Changed: []Node{c}}} })
		case 3:
			return apply(func(time.Time) Input { return Input{Source: Update{Removed: []string{name}}} })
		case 4, 5:
			return applyListing(ago, l, nil)
		case 6:
			return applyVerification(ago, mode, rv, nil)
		case 7:
			return apply(func(now time.Time) Input { return Input{Source: Update{LastContact: now, Verified: rv}} })
		}
		return func(r *Roster, now time.Time) []Change { r.NextActions(now); return nil }
	})
}

func apply(update func(now time.Time) Input) step {
	return func(r *Roster, now time.Time) []Change { return r.Apply(now, update(now)) }
}

func applyListing(ago time.Duration, l Listing, err error) step {
	return apply(func(now time.Time) Input {
		return Input{Listing: &ListingResult{StartedAt: now.Add(-ago), Listing: l, Err: err}}
	})
}

func applyVerification(ago time.Duration, mode Verification, number uint64, err error) step {
	return apply(func(now time.Time) Input {
		return Input{Verification: &VerificationResult{StartedAt: now.Add(-ago), Mode: mode, Number: number, Err: err}}
	})
}

// failure draws what must remove nothing from the roster.
var failure = rapid.Custom(func(t *rapid.T) step {
	boom := errors.New("boom")
	switch rapid.IntRange(0, 6).Draw(t, "failure") {
	case 0:
		return applyListing(0, Listing{}, boom)
	case 1:
		return applyListing(0, Listing{}, nil)
	case 2:
		return applyListing(0, Listing{Invalid: map[string]string{s1: "x", s2: "x", s3: "x"}}, nil)
	case 3:
		return applyListing(0, listing(Server{ID: s1}, Server{ID: s2, NICs: []NIC{{}}}), nil)
	case 4:
		return applyVerification(0, FullVerification, 0, boom)
	case 5:
		return apply(func(time.Time) Input { return Input{Source: Update{Failure: "boom"}} })
	}
	return func(r *Roster, now time.Time) []Change { r.NextActions(now.Add(time.Hour)); return nil }
})

func TestProperties(t *testing.T) {
	for _, resolver := range []Method{ByCloud, ByNodeAddress} {
		t.Run(fmt.Sprintf("resolver %d", resolver), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				cfg := Config{Method: resolver, CIDRs: cidr}
				r, twin, copied, now := New(cfg), New(cfg), map[string]*Node{}, t0
				seen := uint64(0)
				for range rapid.IntRange(1, 40).Draw(t, "steps") {
					now = now.Add(time.Duration(rapid.IntRange(0, 70).Draw(t, "pass")) * time.Second)
					s := events().Draw(t, "step")
					changes := s(r, now)
					s(twin, now)
					oneAddressOneNode(t, r)
					countsFit(t, r)
					changesLeadToNodes(t, r, now, copied, changes)
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
				for i, m := range r.sortedMembers() {
					other := twin.sortedMembers()[i]
					if d := cmp.Diff(m.Omission, other.Omission); d != "" {
						t.Fatalf("same inputs, other omissions:\n%s", d)
					}
					descriptionFits(t, r, &m)
				}
				restartChangesNothing(t, r, cfg, now)
				before := addressesOf(r)
				for range rapid.IntRange(1, 5).Draw(t, "failures") {
					now = now.Add(time.Second)
					failure.Draw(t, "failure")(r, now)
					if d := cmp.Diff(before, addressesOf(r)); d != "" {
						t.Fatalf("an error changed the roster:\n%s", d)
					}
				}
			})
		})
	}
}

// restartChangesNothing applies what the source reports now and one more listing to a roster that is new: what it
// publishes, the old one publishes too.
func restartChangesNothing(t *rapid.T, r *Roster, cfg Config, now time.Time) {
	restarted, update := New(cfg), Input{}
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		update.Source.Changed = append(update.Source.Changed, *r.members[name].Node)
	}
	restarted.Apply(now, update)
	l := applyListing(0, drawListing().Draw(t, "listing"), nil)
	l(restarted, now)
	l(r, now)
	running := addressesOf(r)
	for _, node := range addressesOf(restarted) {
		if !slices.Contains(running, node) {
			t.Fatalf("after a restart: %s, before it: %v", node, running)
		}
	}
}

// descriptionFits compares what is shown of a member with what was decided about it.
func descriptionFits(t *rapid.T, r *Roster, m *Member) {
	var described []netip.Addr
	for _, c := range m.Candidates {
		described = append(described, c.Address)
		if c.Reason == "" && (c.From != "" || !slices.Contains(m.Addresses, c.Address)) {
			t.Fatalf("incomplete: %+v", c)
		}
	}
	for _, a := range slices.Concat(r.members[m.Name].claimed.list(), m.Addresses) {
		if !slices.Contains(described, a) {
			t.Fatalf("%s is not described: %+v", a, m)
		}
	}
	if usesCloud := r.resolver.method == ByCloud; m.Excluded == 0 && usesCloud != (m.Match != "") {
		t.Fatalf("match %q", m.Match)
	}
	if !m.IsPublished() && m.Excluded == 0 && m.Omission.Message == "" {
		t.Fatalf("omitted without a message: %+v", m)
	}
}

func addressesOf(r *Roster) (all []string) {
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
				t.Fatalf("%s is assigned to %s and %s", a, other, n.Name)
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
}

func countsFit(t *rapid.T, r *Roster) {
	want := Counts{
		States:  map[NodeState]int{Ready: 0, Draining: 0, NotReady: 0},
		Omitted: map[OmissionReason]int{},
	}
	for w := ControlPlane; w <= InvalidRecord; w++ {
		want.Omitted[w] = 0
	}
	for _, n := range r.Nodes() {
		want.States[n.State]++
	}
	for _, m := range r.Members(Filter{}) {
		if m.IsPublished() {
			continue
		}
		want.Omitted[m.Omission.Reason]++
		if m.Omission.Message == "" && m.Omission.Reason != ControlPlane {
			t.Fatalf("%s is omitted without a message: %+v", m.Name, m.Omission)
		}
	}
	if d := cmp.Diff(want, r.Counts(), cmpopts.IgnoreUnexported(Counts{})); d != "" {
		t.Fatalf("counts:\n%s", d)
	}
	all := newCounts()
	for _, m := range r.members {
		all.add(m.kind(), 1)
	}
	if d := cmp.Diff(all, r.Counts(), cmp.AllowUnexported(Counts{})); d != "" {
		t.Fatalf("counts of each member:\n%s", d)
	}
}

// changesLeadToNodes applies changes to a copy, which then has all nodes of the roster.
func changesLeadToNodes(t *rapid.T, r *Roster, now time.Time, copied map[string]*Node, changes []Change) {
	for i, c := range changes {
		if i > 0 && changes[i-1].Name >= c.Name {
			t.Fatalf("changes are not sorted, or name one twice: %v", changes)
		}
		if c.Node == nil {
			if copied[c.Name] == nil {
				t.Fatalf("%s is removed, and was never published", c.Name)
			}
			delete(copied, c.Name)
		} else {
			copied[c.Name] = c.Node
		}
	}
	if !r.Status(now).Publishable {
		if changes != nil {
			t.Fatal("changes before the first publication")
		}
		return
	}
	if len(copied) != len(r.Nodes()) {
		t.Fatalf("the copy has %d nodes, the roster %d", len(copied), len(r.Nodes()))
	}
	for _, n := range r.Nodes() {
		if c := copied[n.Name]; c == nil || c.Name != n.Name || !c.looksLike(n) {
			t.Fatalf("the copy has %+v, the roster %+v", c, n)
		}
	}
}

func addrs(all ...string) (addresses []netip.Addr) {
	for _, a := range all {
		addresses = append(addresses, netip.MustParseAddr(a))
	}
	return addresses
}

func node(name, server string) Node {
	return Node{Name: name, UID: "uid-" + name, ProviderID: "ionos://" + server, State: Ready}
}

func server(id, name string, ips ...string) Server {
	return Server{ID: id, Datacenter: dc, Name: name, NICs: []NIC{{ID: "nic-0", LAN: "3", Addresses: addrs(ips...)}}}
}

func listing(s ...Server) Listing { return Listing{Servers: s} }
