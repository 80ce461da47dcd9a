package stream

import (
	"slices"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// put adds an entry to its group, or replaces the one with its key.
func put[T any](s *Set[T], e *Entry[T]) { edit(s, e.Group, e.Key, e) }

// edit replaces the entry of a key; nil: there is none any more.
func edit[T any](s *Set[T], group, key string, e *Entry[T]) {
	entries := slices.Clone(s.Group(group))
	at, found := Find(entries, key)
	if found {
		entries = slices.Delete(entries, at, at+1)
	}
	if e != nil {
		entries = slices.Insert(entries, at, e)
	}
	s.Replace(group, entries)
}

// named returns an entry in a group of its own.
func named(name string) *Entry[string] {
	return &Entry[string]{Group: "g-" + name, Key: name, Fingerprint: contract.Digest{name[0]}, Value: name}
}

// Groups come and go with their Services: the set must not retain every group that ever existed.
func TestRemoveDeletesEmptyGroups(t *testing.T) {
	s := NewSet[string]("e", 4, 4)
	put(s, named("a"))
	put(s, named("b"))
	edit(s, "g-a", "a", nil)
	if _, there := s.groups["g-a"]; there || len(s.groups) != 1 {
		t.Errorf("the empty group still exists: %v", s.groups)
	}
}

// An inventory has a set for each exported Service, most of which are small.
func TestKeepsAsManyChangesAsItHadEntries(t *testing.T) {
	s := NewSet[string]("e", 2, 8)
	for i, want := range []int{2, 2, 2, 3, 4, 5, 6, 7, 8, 8, 8} {
		if got := s.keep(); got != want {
			t.Errorf("keeps %d changes with %d entries, want %d", got, i, want)
		}
		put(s, named(string(rune('a'+i))))
	}
	for i := range 100 {
		edit(s, "g-a", "a", nil)
		put(s, named("a"))
		if len(s.recent) >= 2*s.keep() {
			t.Fatalf("%d changes are kept after %d", len(s.recent), i)
		}
	}
}

func TestResumesWithinTheWindowOnly(t *testing.T) {
	s := NewSet[string]("e", 2, 2)
	beforeWindow := s.Since(nil, nil).At
	put(s, named("a"))
	atWindow := s.Since(nil, nil).At
	put(s, named("b"))
	edit(s, "g-a", "a", nil)
	if d := s.Since(&beforeWindow, nil); !d.Reset {
		t.Errorf("three changes, and the window is two: got %+v, want a reset", d)
	}
	if d := s.Since(&atWindow, nil); d.Reset || len(d.Upserts) != 1 || len(d.Removed) != 1 {
		t.Errorf("two changes: got %+v, want one upsert and one removed key", d)
	}
}

func TestReadersAtTheSamePositionShareChanges(t *testing.T) {
	s := NewSet[string]("e", 8, 8)
	put(s, named("a"))
	at := s.Since(nil, nil).At
	another := Position{Epoch: "another", Revision: 1, Digest: at.Digest}
	put(s, named("b"))
	if s.Since(nil, nil) != s.Since(&Position{Epoch: "unknown", Digest: contract.Digest{1}}, nil) {
		t.Error("two resets are computed twice")
	}
	before := s.Since(&at, nil)
	if s.Since(&at, nil) != before || s.Since(&at, Select([]string{"g-b"})) == before {
		t.Error("the changes since a position are computed twice, or shared by two selections")
	}
	if s.Since(&another, nil) == before {
		t.Error("a position of another set has the changes of this one")
	}
	s.Replace("g-a", []*Entry[string]{{Group: "g-a", Key: "a", Fingerprint: contract.Digest{'a'}, Value: "another age"}})
	if after := s.Since(nil, nil); after.At != before.At || after.Upserts[0].Value != "another age" {
		t.Errorf("content that is not published is out of date: %+v", after)
	}
	for i := range 2 * maxShared {
		s.Since(&at, Select([]string{string(rune('A' + i)), "g-a"}))
	}
	some := Select([]string{"g-a"})
	if selected := s.Since(nil, some); s.Since(nil, some) == selected {
		t.Error("a set retains what a client selects")
	}
	if len(s.shared) != maxShared {
		t.Errorf("%d shared changes", len(s.shared))
	}
}
