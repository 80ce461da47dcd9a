package stream

import (
	"fmt"
	"maps"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// item is an entry with a number as its content.
type item struct {
	group, key string
	value      int
}

func (i item) entry() *Entry[item] {
	return NewEntry(i.group, i.key, i, wrapperspb.String(fmt.Sprint(i.key, " ", i.value)))
}

// Readers of any selection come and go at random, each as far behind as it likes, some with cursors of
// another replica or with an invented digest. One update takes each to the current set.
func TestR10ReaderCatchesUpFromAnyPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 8
		replicas := []*Set[item]{NewSet[item]("a", window, window), NewSet[item]("b", window, window)}
		truth := map[string]item{}
		type reader struct {
			strictReader

			selects *Selection
		}
		only := func(name string) *Selection { return Select([]string{name}) }
		change := func(s *Set[item], group, key string, e *Entry[item]) (changed bool) {
			before := s.revision
			edit(s, group, key, e)
			return s.revision != before
		}
		readers := []*reader{{}, {}, {selects: only("g0")}, {selects: only("g1")}, {selects: only("nothing")}}
		want := func(selects *Selection) map[string]contract.Digest {
			set := map[string]contract.Digest{}
			for key, i := range truth {
				if selects.Has(i.group) {
					set[key] = i.entry().Fingerprint
				}
			}
			return set
		}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "changes") {
					group := rapid.IntRange(0, 2).Draw(t, "group")
					i := item{
						fmt.Sprintf("g%d", group),
						fmt.Sprintf("g%d/%d", group, rapid.IntRange(0, 3).Draw(t, "key")),
						rapid.IntRange(0, 2).Draw(t, "value"),
					}
					previous, existed := truth[i.key]
					if rapid.Bool().Draw(t, "removed") {
						delete(truth, i.key)
						for _, s := range replicas {
							if revision := s.revision; change(s, i.group, i.key, nil) != existed {
								t.Fatalf("removal of %s: from revision %d to %d, it existed: %t", i.key, revision, s.revision, existed)
							}
						}
						continue
					}
					truth[i.key] = i
					for _, s := range replicas {
						if change(s, i.group, i.key, i.entry()) != (!existed || previous != i) {
							t.Fatalf("%v after %v (existed: %t): revision %d", i, previous, existed, s.revision)
						}
					}
				}
			},
			"read": func(t *rapid.T) {
				r, s := rapid.SampledFrom(readers).Draw(t, "reader"), rapid.SampledFrom(replicas).Draw(t, "replica")
				before := r.position
				d := s.Since(before, r.selects)
				if err := apply(&r.strictReader, d); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(r.set, want(r.selects)) {
					t.Fatalf("the reader has %v, want %v", r.set, want(r.selects))
				}
				if before != nil && before.Epoch == d.At.Epoch {
					behind := d.At.Revision - before.Revision
					if entries := uint64(len(d.Upserts) + len(d.Removed)); !d.Reset && entries > behind {
						t.Fatalf("%d entries for %d changes", entries, behind)
					}
					if d.Reset && behind <= window {
						t.Fatalf("a reset for a reader that is only %d changes behind", behind)
					}
				}
			},
			"change selection": func(t *rapid.T) {
				r := rapid.SampledFrom(readers).Draw(t, "reader")
				r.selects = rapid.SampledFrom([]*Selection{nil, only("g0"), only("g2")}).Draw(t, "selection")
				if err := apply(&r.strictReader, replicas[0].Since(r.position, r.selects)); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(r.set, want(r.selects)) {
					t.Fatalf("with another selection the reader has %v, want %v", r.set, want(r.selects))
				}
			},
			"forge": func(t *rapid.T) {
				r := rapid.SampledFrom(readers).Draw(t, "reader")
				if r.position == nil {
					return
				}
				forged := *r.position
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
				d := replicas[0].Since(&forged, r.selects)
				if !d.Reset && forged.Digest != r.position.Digest {
					t.Fatalf("a forged digest was accepted: %+v", d)
				}
				fresh := strictReader{set: r.set}
				if err := apply(&fresh, d); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				for _, s := range replicas {
					var fresh strictReader
					if err := apply(&fresh, s.Since(nil, nil)); err != nil {
						t.Fatal(err)
					}
					if !maps.Equal(fresh.set, want(nil)) {
						t.Fatalf("the set has %v, want %v", fresh.set, want(nil))
					}
				}
			},
		})
	})
}
