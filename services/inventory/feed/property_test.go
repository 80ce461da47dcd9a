package feed

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/deltaset/deltasettest"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
	"pgregory.net/rapid"
)

// Readers come and go at random, each as far behind as it likes, some with cursors of another replica or
// with an invented digest. A single update takes each to the current set.
func TestR10ReaderCatchesUpFromAnyPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 8
		replicas := []*Set{newSet("a", window), newSet("b", window)}
		truth := map[string]*roster.Node{}
		readers := []*deltasettest.Reader{{}, {}, {}, {}}
		read := func(t *rapid.T, r *deltasettest.Reader, u Update) {
			if !u.Synced {
				t.Fatalf("not synced after the first publication: %+v", u)
			}
			if err := deltasettest.Apply(r, u.Delta); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range replicas {
			s.SetStatus(publishedStatus(1))
		}
		change := func() {
			var batch []roster.Change
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				name := fmt.Sprintf("n%d", rapid.IntRange(0, 5).Draw(t, "node"))
				if rapid.Bool().Draw(t, "removed") {
					delete(truth, name)
					batch = append(batch, roster.Change{Name: name})
					continue
				}
				n := &roster.Node{
					Name: name, UID: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid"),
					State:     source.NodeState(rapid.IntRange(1, 3).Draw(t, "state")),
					Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
					Labels: map[string]string{
						"l": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "label"),
					},
				}
				truth[name] = n
				batch = append(batch, roster.Change{Name: name, Node: n})
			}
			for _, s := range replicas {
				s.Apply(batch)
			}
		}
		want := func() map[string]Digest {
			set := map[string]Digest{}
			for name, n := range truth {
				set[name] = fingerprint(n)
			}
			return set
		}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(*rapid.T) { change() },
			"read": func(t *rapid.T) {
				r := rapid.SampledFrom(readers).Draw(t, "reader")
				s := rapid.SampledFrom(replicas).Draw(t, "replica")
				before := r.Position
				u := s.Since(before)
				read(t, r, u)
				if !maps.Equal(r.Set, want()) {
					t.Fatalf("the reader has %v, want %v", r.Set, want())
				}
				if !u.Reset && before != nil && before.Epoch == u.At.Epoch && before.Revision <= u.At.Revision {
					if sent := len(u.Upserts) + len(u.Removed); uint64(sent) > u.At.Revision-before.Revision || sent > 6 {
						t.Fatalf("%d entries for %d changes of 6 nodes", sent, u.At.Revision-before.Revision)
					}
				}
			},
			"forge": func(t *rapid.T) {
				r := rapid.SampledFrom(readers).Draw(t, "reader")
				if r.Position == nil {
					return
				}
				forged := *r.Position
				switch rapid.IntRange(0, 2).Draw(t, "what") {
				case 0:
					forged.Digest[rapid.IntRange(0, 15).Draw(t, "byte")] ^= 1
				case 1:
					forged.Revision = rapid.Uint64().Draw(t, "revision")
				case 2:
					forged.Epoch = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "epoch")
				}
				// A forged position must give the current set or a reset, never changes that do not
				// apply to the reader's set.
				if u := replicas[0].Since(&forged); u.Reset || forged.Digest == r.Position.Digest {
					read(t, r, u)
				} else {
					t.Fatalf("a forged digest was accepted: %+v", u)
				}
			},
			"": func(t *rapid.T) {
				for _, s := range replicas {
					u := s.Since(nil)
					fresh := &deltasettest.Reader{}
					read(t, fresh, u)
					if !maps.Equal(fresh.Set, want()) {
						t.Fatalf("the set is %v, want %v", fresh.Set, want())
					}
				}
			},
		})
	})
}
