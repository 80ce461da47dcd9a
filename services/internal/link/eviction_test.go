package link

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestEvictsOldestItemOfLargestSource(t *testing.T) {
	for _, c := range []struct {
		name    string
		added   []string // source and number
		evicted []string
	}{
		{"room for all", []string{"a1", "a2", "b1", "c1"}, nil},
		{"a flood from one address displaces itself", []string{"b1", "a1", "a2", "a3", "a4", "a5"}, []string{"a1", "a2"}},
		{"a newcomer displaces the flood", []string{"a1", "a2", "a3", "a4", "b1", "c1"}, []string{"a1", "a2"}},
		{"the newcomer's own source counts it", []string{"a1", "b1", "c1", "d1", "d2"}, []string{"d1"}},
		{"among equals the oldest goes", []string{"b1", "a1", "a2", "b2", "c1"}, []string{"b1"}},
		{"each from an address of its own", []string{"a1", "b1", "c1", "d1", "e1", "f1"}, []string{"a1", "b1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var evicted []string
			s := NewEvictionSet(4, func(value string) { evicted = append(evicted, value) })
			for _, value := range c.added {
				s.Add(fmt.Sprintf("10.0.0.%d:1", value[0]), value)
			}
			if diff := cmp.Diff(c.evicted, evicted); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNeverExceedsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		var evicted []int
		s := NewEvictionSet(limit, func(value int) { evicted = append(evicted, value) })
		items := map[int]bool{}
		for n := range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(items) > 0 && rapid.Bool().Draw(t, "remove") {
				all := slices.Sorted(func(yield func(int) bool) {
					for value := range items {
						if !yield(value) {
							return
						}
					}
				})
				value := rapid.SampledFrom(all).Draw(t, "which")
				if kept := !slices.Contains(evicted, value); s.Remove(value) != kept {
					t.Fatalf("Remove of %d reports %v", value, !kept)
				}
				delete(items, value)
				continue
			}
			s.Add(fmt.Sprintf("10.0.0.%d:1", rapid.IntRange(0, 3).Draw(t, "source")), n)
			items[n] = true
			for _, value := range evicted {
				delete(items, value)
			}
			if s.Len() != len(items) || s.Len() > limit {
				t.Fatalf("%d items, want %d (limit %d)", s.Len(), len(items), limit)
			}
		}
		if sorted := slices.Compact(slices.Sorted(slices.Values(evicted))); len(sorted) != len(evicted) {
			t.Fatalf("evicted twice: %v", evicted)
		}
	})
}

func TestSourceAddr(t *testing.T) {
	for peer, want := range map[string]string{
		"192.0.2.7:1":              "192.0.2.7",
		"[::ffff:192.0.2.7]:1":     "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::",
		"[fe80::1%lo]:1":           "fe80::",
	} {
		if got := sourceOf(peer); got != netip.MustParseAddr(want) {
			t.Errorf("%s has source %s, want %s", peer, got, want)
		}
	}
	if got := sourceOf("@"); got.IsValid() {
		t.Errorf("a peer without an address has source %s", got)
	}
}
