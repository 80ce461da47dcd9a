package deltaset

import "testing"

type named string

func (n named) Identity() (group, key string, fingerprint Digest) {
	return "g-" + string(n), string(n), Digest{n[0]}
}

func TestDeltaWithoutChangesIsEmpty(t *testing.T) {
	for name, tc := range map[string]struct {
		delta Delta[named]
		want  bool
	}{
		"nothing":         {Delta[named]{Count: 3}, true},
		"a reset to none": {Delta[named]{Reset: true}, false},
		"an upsert":       {Delta[named]{Upserts: []named{"a"}}, false},
		"a removal":       {Delta[named]{Removed: []string{"a"}}, false},
	} {
		if got := tc.delta.Empty(); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}

// Groups come and go with their Services: the set must not retain every group that ever existed.
func TestRemoveDeletesEmptyGroups(t *testing.T) {
	s := New[named]("e", 4, 4)
	for _, n := range []named{"a", "b"} {
		s.Put(n)
	}
	s.Remove("g-a", "a")
	if _, there := s.groups["g-a"]; there || len(s.groups) != 1 {
		t.Errorf("the empty group still exists: %v", s.groups)
	}
}

// An inventory has a set for each exported Service, most of which are small.
func TestKeepsAsManyChangesAsItHadEntries(t *testing.T) {
	s := New[named]("e", 2, 8)
	for i, want := range []int{2, 2, 2, 3, 4, 5, 6, 7, 8, 8, 8} {
		if got := s.keep(); got != want {
			t.Errorf("keeps %d changes with %d entries, want %d", got, i, want)
		}
		s.Put(named(rune('a' + i)))
	}
	for i := range 100 {
		s.Remove("g-a", "a")
		s.Put(named("a"))
		if len(s.recent) >= 2*s.keep() {
			t.Fatalf("%d changes are kept after %d", len(s.recent), i)
		}
	}
}

func TestResumesWithinTheWindowOnly(t *testing.T) {
	s := New[named]("e", 2, 2)
	beforeWindow := s.Since(nil, nil).At
	s.Put("a")
	atWindow := s.Since(nil, nil).At
	s.Put("b")
	s.Remove("g-a", "a")
	if d := s.Since(&beforeWindow, nil); !d.Reset {
		t.Errorf("three changes, and the window is two: got %+v, want a reset", d)
	}
	if d := s.Since(&atWindow, nil); d.Reset || len(d.Upserts) != 1 || len(d.Removed) != 1 {
		t.Errorf("two changes: got %+v, want one upsert and one removed key", d)
	}
}

func TestHasherEncodesBoolsInOrder(t *testing.T) {
	seen := map[Digest][]bool{}
	for _, values := range [][]bool{{}, {true}, {false}, {true, false}, {false, true}} {
		var c Hasher
		c.AddBools(values...)
		if other, twice := seen[c.Fingerprint()]; twice {
			t.Errorf("%v has the fingerprint of %v", values, other)
		}
		seen[c.Fingerprint()] = values
	}
}
