package feed

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/deltaset/deltasettest"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

// Readers come and go at random, each as far behind as it likes, some with cursors of
// another replica or with a digest that no set ever had; each ends with the truth in one answer.
func TestR10ReaderCatchesUpFromAnyPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 8
		view := View{Selector: labels.SelectorFromSet(labels.Set{"pool": "blue"}), Labels: []string{"l"}}
		replicas := []*Store{NewStoreWithWindow("a", view, window), NewStoreWithWindow("b", view, window)}
		truth := map[string]*roster.Node{}
		readers := []*deltasettest.Reader{{}, {}, {}, {}}
		read := func(t *rapid.T, r *deltasettest.Reader, u Update) {
			if !u.Synced {
				t.Fatalf("nothing is told after the first word: %+v", u)
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
				if rapid.Bool().Draw(t, "gone") {
					delete(truth, name)
					batch = append(batch, roster.Change{Name: name})
					continue
				}
				n := &roster.Node{
					Name: name, UID: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "uid"),
					State:     roster.State(rapid.IntRange(1, 3).Draw(t, "state")),
					Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
					Labels: map[string]string{
						"pool": rapid.SampledFrom([]string{"blue", "blue", "red"}).Draw(t, "pool"),
						"l":    rapid.SampledFrom([]string{"x", "y"}).Draw(t, "label"),
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
				if view.selects(n) {
					set[name] = fingerprint(n, view.exportedLabels(n))
				}
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
					t.Fatalf("after a read the reader has %v, the truth is %v", r.Set, want())
				}
				if !u.Reset && before != nil && before.Epoch == u.At.Epoch && before.Revision <= u.At.Revision {
					if told := len(u.Upserts) + len(u.Removed); uint64(told) > u.At.Revision-before.Revision || told > 6 {
						t.Fatalf("%d nodes are told of %d changes of 6 nodes", told, u.At.Revision-before.Revision)
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
				// Whatever the answer to a forged position is, it leads to the truth or is the
				// reset: never a change that would not fit.
				if u := replicas[0].Since(&forged); u.Reset || forged.Digest == r.Position.Digest {
					read(t, r, u)
				} else {
					t.Fatalf("a forged digest was answered as if it were known: %+v", u)
				}
			},
			"": func(t *rapid.T) {
				for _, s := range replicas {
					u := s.Since(nil)
					fresh := &deltasettest.Reader{}
					read(t, fresh, u)
					if !maps.Equal(fresh.Set, want()) {
						t.Fatalf("the store has %v, the truth is %v", fresh.Set, want())
					}
				}
			},
		})
	})
}
