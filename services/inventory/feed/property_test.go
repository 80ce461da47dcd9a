package feed

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

// reader does what the contract asks of a client, and nothing more.
type reader struct {
	set map[string]Digest
	at  *Position
}

func (r *reader) read(t *rapid.T, u Update) {
	if !u.Synced {
		if !u.Empty() {
			t.Fatalf("something is told before the first word: %+v", u)
		}
		return
	}
	if u.Reset {
		r.set = map[string]Digest{}
	}
	for _, name := range u.Removed {
		if _, ok := r.set[name]; !ok {
			t.Fatalf("removal of %s, which the reader does not have", name)
		}
		delete(r.set, name)
	}
	seen := map[string]bool{}
	for _, e := range u.Upserts {
		if seen[e.Node.Name] {
			t.Fatalf("%s is told twice", e.Node.Name)
		}
		seen[e.Node.Name] = true
		r.set[e.Node.Name] = e.Fingerprint
	}
	for _, name := range u.Removed {
		if seen[name] {
			t.Fatalf("%s is removed and upserted", name)
		}
	}
	var sum Digest
	for _, f := range r.set {
		sum.toggle(f)
	}
	if sum != u.At.Digest || len(r.set) != u.Count {
		t.Fatalf("the reader has %d nodes and digest %x, told are %d and %x", len(r.set), sum, u.Count, u.At.Digest)
	}
	at := u.At
	r.at = &at
}

// Readers come and go at random, each as far behind as it likes, some with cursors of
// another replica or with a digest that no set ever had; each ends with the truth in one answer.
func TestR10AnyReaderFromAnywhereEndsWithThePresentSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 8
		view := View{Selector: labels.SelectorFromSet(labels.Set{"pool": "blue"}), Labels: []string{"l"}}
		replicas := []*Store{newStore("a", view, window), newStore("b", view, window)}
		truth := map[string]*roster.Node{}
		readers := make([]*reader, 4)
		for i := range readers {
			readers[i] = &reader{set: map[string]Digest{}}
		}
		for _, s := range replicas {
			s.SetStatus(told(1))
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
					set[name] = fingerprint(n, view.pick(n))
				}
			}
			return set
		}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(*rapid.T) { change() },
			"read": func(t *rapid.T) {
				r := rapid.SampledFrom(readers).Draw(t, "reader")
				s := rapid.SampledFrom(replicas).Draw(t, "replica")
				before := r.at
				u := s.Since(before)
				r.read(t, u)
				if !maps.Equal(r.set, want()) {
					t.Fatalf("after a read the reader has %v, the truth is %v", r.set, want())
				}
				if !u.Reset && before != nil && before.Epoch == u.At.Epoch && before.Revision <= u.At.Revision {
					if told := len(u.Upserts) + len(u.Removed); uint64(told) > u.At.Revision-before.Revision || told > 6 {
						t.Fatalf("%d nodes are told of %d changes of 6 nodes", told, u.At.Revision-before.Revision)
					}
				}
			},
			"forge": func(t *rapid.T) {
				r := rapid.SampledFrom(readers).Draw(t, "reader")
				if r.at == nil {
					return
				}
				forged := *r.at
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
				if u := replicas[0].Since(&forged); u.Reset || forged.Digest == r.at.Digest {
					r.read(t, u)
				} else {
					t.Fatalf("a forged digest was answered as if it were known: %+v", u)
				}
			},
			"": func(t *rapid.T) {
				for _, s := range replicas {
					u := s.Since(nil)
					fresh := &reader{}
					fresh.read(t, u)
					if !maps.Equal(fresh.set, want()) {
						t.Fatalf("the store has %v, the truth is %v", fresh.set, want())
					}
				}
			},
		})
	})
}
