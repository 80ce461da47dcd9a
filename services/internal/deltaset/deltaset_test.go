package deltaset

import "testing"

type named string

func (n named) Identity() (group, key string, fingerprint Digest) {
	return "g-" + string(n), string(n), Digest{n[0]}
}

func TestDeltaWithoutChangesIsEmpty(t *testing.T) {
	for name, of := range map[string]struct {
		answer Delta[named]
		want   bool
	}{
		"nothing":          {Delta[named]{Count: 3}, true},
		"a reset to none":  {Delta[named]{Reset: true}, false},
		"one that is new":  {Delta[named]{Upserts: []named{"a"}}, false},
		"one that is gone": {Delta[named]{Removed: []string{"a"}}, false},
	} {
		if got := of.answer.Empty(); got != of.want {
			t.Errorf("%s: got %t, want %t", name, got, of.want)
		}
	}
}

// Groups come and go with the Services that they are of: the set must not grow with all there ever were.
func TestRemoveDeletesEmptyGroups(t *testing.T) {
	s := New[named]("e", 4)
	for _, n := range []named{"a", "b"} {
		s.Put(n)
	}
	s.Remove("g-a", "a")
	if _, there := s.groups["g-a"]; there || len(s.groups) != 1 {
		t.Errorf("after its last entry was removed the group is there: %v", s.groups)
	}
}

func TestHasherEncodesBoolsInOrder(t *testing.T) {
	seen := map[Digest][]bool{}
	for _, answers := range [][]bool{{}, {true}, {false}, {true, false}, {false, true}} {
		var c Hasher
		c.AddBools(answers...)
		if other, twice := seen[c.Fingerprint()]; twice {
			t.Errorf("%v has the fingerprint of %v", answers, other)
		}
		seen[c.Fingerprint()] = answers
	}
}
