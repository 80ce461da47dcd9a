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
	s := New[named]("e", 4)
	for _, n := range []named{"a", "b"} {
		s.Put(n)
	}
	s.Remove("g-a", "a")
	if _, there := s.groups["g-a"]; there || len(s.groups) != 1 {
		t.Errorf("the empty group still exists: %v", s.groups)
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
