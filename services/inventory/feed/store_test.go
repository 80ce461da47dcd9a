package feed

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"k8s.io/apimachinery/pkg/labels"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func node(name string, state roster.State, more ...func(*roster.Node)) *roster.Node {
	n := &roster.Node{
		Name: name, UID: "uid-" + name, State: state, Since: start,
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
	for _, f := range more {
		f(n)
	}
	return n
}

func labelled(kv ...string) func(*roster.Node) {
	return func(n *roster.Node) {
		n.Labels = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			n.Labels[kv[i]] = kv[i+1]
		}
	}
}

func up(nodes ...*roster.Node) (changes []roster.Change) {
	for _, n := range nodes {
		changes = append(changes, roster.Change{Name: n.Name, Node: n})
	}
	return changes
}

func gone(names ...string) (changes []roster.Change) {
	for _, name := range names {
		changes = append(changes, roster.Change{Name: name})
	}
	return changes
}

func told(observation uint64) roster.Status {
	return roster.Status{
		Membership: roster.Part{Sync: roster.Synced}, Addresses: roster.Part{Sync: roster.Synced},
		Observation: observation, ObservedAt: start, Told: true,
	}
}

func ready(s *Store) *Store { s.SetStatus(told(1)); return s }

func names(u Update) []string {
	var all []string
	for _, e := range u.Upserts {
		all = append(all, e.Node.Name)
	}
	return all
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestR4FingerprintIsTheSameInEveryProcess(t *testing.T) {
	n := node("worker-1", roster.Ready, labelled("zone", "a", "pool", "blue"))
	n.Addresses = append(n.Addresses, netip.MustParseAddr("fd00::1"))
	n.Zone, n.Region = "de/fra/1", "de/fra"
	got := fingerprint(n, n.Labels)
	// A golden value: replicas of two versions that differ here make every client read
	// its whole set again when it changes between them.
	want(t, "fingerprint", hex.EncodeToString(got[:]), "41977f50cd09ba1d70f2e40e8bffb80d")
}

func TestR4FingerprintTellsApartWhateverASubscriberIsTold(t *testing.T) {
	base := func() *roster.Node {
		return node("a", roster.Ready, labelled("k", "v", "k2", "v2"))
	}
	of := func(n *roster.Node) Digest { return fingerprint(n, n.Labels) }
	for what, alter := range map[string]func(*roster.Node){
		"name":               func(n *roster.Node) { n.Name = "b" },
		"uid":                func(n *roster.Node) { n.UID = "other" },
		"address":            func(n *roster.Node) { n.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.2")} },
		"another address":    func(n *roster.Node) { n.Addresses = append(n.Addresses, netip.MustParseAddr("fd00::1")) },
		"state":              func(n *roster.Node) { n.State = roster.NotReady },
		"zone":               func(n *roster.Node) { n.Zone = "z" },
		"region":             func(n *roster.Node) { n.Region = "z" },
		"value of a label":   func(n *roster.Node) { n.Labels["k"] = "w" },
		"one label fewer":    func(n *roster.Node) { delete(n.Labels, "k") },
		"key and value slip": func(n *roster.Node) { delete(n.Labels, "k"); n.Labels["kv"] = "" },
		"name and uid slip":  func(n *roster.Node) { n.Name, n.UID = "auid-", "a" },
	} {
		n := base()
		alter(n)
		if of(n) == of(base()) {
			t.Errorf("%s: the fingerprint does not tell", what)
		}
	}
	n := base()
	n.Since, n.ProviderID, n.ServerID = start.Add(time.Hour), "ionos://x", "x"
	if of(n) != of(base()) {
		t.Error("age or cloud identifiers are part of the fingerprint")
	}
}

func TestR4DigestIsTheXOROfWhatIsInTheSet(t *testing.T) {
	s := ready(NewStore("e", View{}))
	s.Apply(up(node("a", roster.Ready), node("b", roster.Ready), node("c", roster.Draining)))
	s.Apply(up(node("b", roster.NotReady)))
	s.Apply(gone("a", "nobody"))
	var sum Digest
	u := s.Since(nil)
	for _, e := range u.Upserts {
		sum.XOR(e.Fingerprint)
	}
	want(t, "digest", u.At.Digest, sum)
	s.Apply(gone("b", "c"))
	want(t, "digest of the empty set", s.Since(nil).At.Digest, Digest{})
}

func TestR5AnswersTheDigestOfThePresentSetWithNothingWhateverTheEpoch(t *testing.T) {
	a, b := ready(NewStore("replica-a", View{})), ready(NewStore("replica-b", View{}))
	a.Apply(up(node("x", roster.NotReady), node("y", roster.Ready)))
	a.Apply(up(node("x", roster.Ready)))
	b.Apply(up(node("y", roster.Ready), node("x", roster.Ready)))
	at := a.Since(nil).At
	u := b.Since(&at)
	if !u.Synced || !u.Empty() || u.Count != 2 || u.At.Epoch != "replica-b" || u.At.Revision != 2 {
		t.Errorf("answer of the other replica: %+v", u)
	}
	empty := ready(NewStore("replica-c", View{}))
	if u := empty.Since(&Position{Epoch: "old"}); !u.Synced || !u.Empty() || u.Count != 0 {
		t.Errorf("answer about an empty set: %+v", u)
	}
}

func TestR6TellsWhatChangedSinceTheCursor(t *testing.T) {
	s := ready(NewStore("e", View{}))
	s.Apply(up(node("a", roster.Ready), node("b", roster.Ready), node("c", roster.Ready)))
	at := s.Since(nil).At
	s.Apply(up(node("d", roster.Ready), node("a", roster.NotReady)))
	s.Apply(gone("b", "d")) // d came and went
	s.Apply(up(node("a", roster.Draining), node("e", roster.Ready)))
	s.Apply(gone("c"))
	s.Apply(up(node("c", roster.Ready, func(n *roster.Node) { n.UID = "another" })))
	u := s.Since(&at)
	if u.Reset || !u.Synced {
		t.Fatalf("answer: %+v", u)
	}
	want(t, "upserts", names(u), []string{"a", "c", "e"})
	want(t, "removed", u.Removed, []string{"b"})
	want(t, "newest state", u.Upserts[0].Node.State, roster.Draining)
}

func TestR7AnswersAnythingElseWithAReset(t *testing.T) {
	s := ready(NewStoreWithin("e", View{}, 4))
	s.Apply(up(node("a", roster.Ready)))
	var past []Position
	for i := range 6 {
		past = append(past, s.Since(nil).At)
		s.Apply(up(node("b", roster.Ready, func(n *roster.Node) { n.UID = strconv.Itoa(i) })))
	}
	last := past[len(past)-1]
	alter := func(f func(*Position)) *Position { p := last; f(&p); return &p }
	for what, c := range map[string]struct {
		at    *Position
		reset bool
	}{
		"nothing held":             {nil, true},
		"the last change":          {&last, false},
		"the edge of the window":   {&past[2], false},
		"beyond the window":        {&past[1], true},
		"another epoch":            {alter(func(p *Position) { p.Epoch = "f" }), true},
		"a revision of the future": {alter(func(p *Position) { p.Revision = 1000 }), true},
		"the greatest revision":    {alter(func(p *Position) { p.Revision = 1<<64 - 1 }), true},
		"the present revision":     {alter(func(p *Position) { p.Revision++ }), true},
		"a digest that never was":  {alter(func(p *Position) { p.Digest[3] ^= 1 }), true},
	} {
		if u := s.Since(c.at); u.Reset != c.reset || !u.Synced {
			t.Errorf("%s: reset is %v", what, u.Reset)
		} else if u.Reset {
			want(t, what, names(u), []string{"a", "b"})
		}
	}
}

func TestR8SaysNothingButTheStatusBeforeTheFirstWord(t *testing.T) {
	s := NewStore("e", View{})
	s.Apply(up(node("a", roster.Ready)))
	s.SetStatus(roster.Status{Membership: roster.Part{Sync: roster.Unsynced, Reason: "starting"}})
	if u := s.Since(nil); u.Synced || !u.Empty() || u.Status.Membership.Reason != "starting" {
		t.Errorf("before the first word: %+v", u)
	}
	if u := s.All(); u.Synced || len(u.Upserts) != 1 {
		t.Errorf("the set as it is, before the first word: %+v", u)
	}
	ready(s)
	at := s.Since(nil).At
	withdrawn := told(1)
	withdrawn.Told = false
	s.SetStatus(withdrawn)
	if u := s.Since(&at); u.Synced || !u.Empty() {
		t.Errorf("while the word is withdrawn: %+v", u)
	}
}

func TestTellsAViewItsNodesAndLabelsOnly(t *testing.T) {
	s := ready(NewStore("e", View{Selector: labels.SelectorFromSet(labels.Set{"pool": "blue"}), Labels: []string{"zone", "none", "rack"}}))
	want(t, "view", s.View().Selector.String(), "pool=blue")
	s.Apply(up(
		node("a", roster.Ready, labelled("pool", "blue", "zone", "1", "rack", "2", "secret", "x")),
		node("b", roster.Ready, labelled("pool", "red"))))
	u := s.Since(nil)
	want(t, "nodes", names(u), []string{"a"})
	want(t, "labels", u.Upserts[0].Labels, map[string]string{"zone": "1", "rack": "2"})
	want(t, "changes", s.Revision(), 1)

	at := u.At
	if changed, _ := s.Apply(up(node("a", roster.Ready, labelled("pool", "blue", "zone", "1", "rack", "2", "secret", "y")))); changed {
		t.Error("a label that the view does not tell changed it")
	}
	s.Apply(up(node("a", roster.Ready, labelled("pool", "red", "zone", "1"))))
	want(t, "removed by its label", s.Since(&at).Removed, []string{"a"})
}

func TestJudgesDoubtPerView(t *testing.T) {
	blue := View{Selector: labels.SelectorFromSet(labels.Set{"pool": "blue"})}
	many := func(n int, state roster.State) (nodes []*roster.Node) {
		for i := range n {
			nodes = append(nodes, node(fmt.Sprintf("n%d", i), state, labelled("pool", "blue")))
		}
		return nodes
	}
	for _, c := range []struct {
		name  string
		apply []roster.Change
		doubt bool
	}{
		{"half of the nodes lost", gone("n0", "n1"), false},
		{"more than half lost", gone("n0", "n1", "n2"), true},
		{"more than half lost, as many others came", append(gone("n0", "n1", "n2"), up(node("x", roster.Ready, labelled("pool", "blue")))...), true},
		{"lost and back again", append(gone("n0", "n1", "n2"), up(many(4, roster.Ready)...)...), false},
		{"all lost", gone("n0", "n1", "n2", "n3"), true},
		{"none ready", up(many(4, roster.NotReady)...), true},
		{"most not ready", up(many(3, roster.NotReady)...), false},
		{"the only one that was ready lost", append(up(many(3, roster.NotReady)...), gone("n3")...), true},
		{"come and gone again", append(up(node("x", roster.Ready, labelled("pool", "blue")), node("y", roster.Ready, labelled("pool", "blue"))), gone("x", "y", "n0")...), false},
		{"all relabelled", up(node("n0", roster.Ready), node("n1", roster.Ready), node("n2", roster.Ready), node("n3", roster.Ready)), true},
		{"all of another view lost", gone("r0", "r1"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewStore("e", blue)
			s.Apply(up(many(4, roster.Ready)...))
			s.Apply(up(node("r0", roster.Ready), node("r1", roster.Ready)))
			s.SetStatus(told(1))
			_, doubt := s.Apply(c.apply)
			want(t, "doubt", doubt, c.doubt)
		})
	}
	t.Run("counts what was lost from the last observation on", func(t *testing.T) {
		s := NewStore("e", blue)
		s.Apply(up(many(8, roster.Ready)...))
		s.SetStatus(told(1))
		s.Apply(gone("n0", "n1", "n2"))
		s.SetStatus(told(2))
		if _, doubt := s.Apply(gone("n3", "n4")); doubt {
			t.Error("what the last observation confirmed is counted again")
		}
		if _, doubt := s.Apply(gone("n5")); !doubt {
			t.Error("three of five lost, and no doubt")
		}
	})
	t.Run("counts on while no observation comes", func(t *testing.T) {
		s := NewStore("e", blue)
		s.Apply(up(many(8, roster.Ready)...))
		s.SetStatus(told(1))
		s.Apply(gone("n0", "n1", "n2"))
		s.SetStatus(told(1))
		if _, doubt := s.Apply(gone("n3", "n4")); !doubt {
			t.Error("five of eight lost, and no doubt")
		}
	})
	t.Run("is not there from the first word on when the view is in order", func(t *testing.T) {
		s := NewStore("e", blue)
		s.Apply(up(many(2, roster.Ready)...))
		want(t, "doubt", s.SetStatus(told(1)), false)
	})
	t.Run("is there from the first word on when the view is empty", func(t *testing.T) {
		s := NewStore("e", blue)
		want(t, "doubt before the first word", s.SetStatus(roster.Status{}), false)
		want(t, "doubt", s.SetStatus(told(1)), true)
		want(t, "doubt once more", s.SetStatus(told(2)), false)
	})
}

func TestWakesReadersWhenThereIsSomethingToTell(t *testing.T) {
	older := told(1)
	older.ObservedAt, older.Membership.Since = start.Add(time.Hour), start.Add(time.Hour)
	degraded := told(1)
	degraded.Addresses = roster.Part{Sync: roster.Degraded, Reason: "503"}
	for _, c := range []struct {
		name  string
		do    func(*Store)
		wakes bool
	}{
		{"a change of the set", func(s *Store) { s.Apply(gone("a")) }, true},
		{"a change that the view does not show", func(s *Store) { s.Apply(gone("b")) }, false},
		{"another observation", func(s *Store) { s.SetStatus(told(2)) }, true},
		{"a part degraded", func(s *Store) { s.SetStatus(degraded) }, true},
		{"mere ages", func(s *Store) { s.SetStatus(older) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := ready(NewStore("e", View{}))
			s.Apply(up(node("a", roster.Ready)))
			changed := s.Changed()
			c.do(s)
			select {
			case <-changed:
				want(t, "woken", true, c.wakes)
			default:
				want(t, "woken", false, c.wakes)
			}
		})
	}
}

func TestStoresSeedALateViewAndGiveEachAnEpoch(t *testing.T) {
	all := NewStores("life")
	all.Apply(up(node("a", roster.Ready, labelled("pool", "blue")), node("b", roster.Ready), node("c", roster.Ready)))
	all.Apply(gone("c"))
	all.SetStatus(told(3))
	blue := View{Selector: labels.SelectorFromSet(labels.Set{"pool": "blue"})}
	early, late := all.Acquire(View{}), all.Acquire(blue)
	want(t, "whole", names(early.Since(nil)), []string{"a", "b"})
	want(t, "late view", names(late.Since(nil)), []string{"a"})
	if e, l := early.Since(nil).At.Epoch, late.Since(nil).At.Epoch; e == l || len(l) > 64 {
		t.Errorf("epochs of two views: %q, %q", e, l)
	}
	if all.Acquire(View{Selector: labels.Everything()}) != early {
		t.Error("the same view has two stores")
	}
	want(t, "left out by the view", all.Outside(blue)[0].Name, "b")
	want(t, "doubt of one view", all.Apply(gone("a")), true)
	want(t, "doubt of none", all.Apply(up(node("d", roster.Ready))), false)
	want(t, "what the view has now", names(late.All()), nil)
}

func TestViewsThatTellDifferentThingsHaveDifferentKeys(t *testing.T) {
	keys := map[string]string{}
	for name, v := range map[string]View{
		"all":      {},
		"blue":     {Selector: labels.SelectorFromSet(labels.Set{"pool": "blue"})},
		"a, b":     {Labels: []string{"a", "b"}},
		"ab":       {Labels: []string{"ab"}},
		"cd":       {Labels: []string{"cd"}},
		"cyan":     {Selector: labels.SelectorFromSet(labels.Set{"pool": "cyan"})},
		"selector": {Selector: labels.SelectorFromSet(labels.Set{"a": "b"}), Labels: []string{"a"}},
	} {
		if other, ok := keys[v.Key()]; ok {
			t.Errorf("%s and %s have one key", name, other)
		}
		keys[v.Key()] = name
	}
	want(t, "order of labels", View{Labels: []string{"b", "a", "b"}}.Key(), View{Labels: []string{"a", "b"}}.Key())
}
