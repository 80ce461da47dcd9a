package deltaset_test

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/internal/deltaset/deltasettest"
)

// item is an entry with a number as its content.
type item struct {
	group, key string
	value      int
}

func (i item) Identity() (group, key string, fingerprint deltaset.Digest) {
	var c deltaset.Hasher
	c.AddString(i.key)
	c.AddUint(uint64(i.value))
	return i.group, i.key, c.Fingerprint()
}

// Readers with any filter come and go at random, each as far behind as it likes, some with cursors of
// another replica or with an invented digest. A single delta takes each to the current set.
func TestR10ReaderCatchesUpFromAnyPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 8
		replicas := []*deltaset.Set[item]{deltaset.New[item]("a", window, window), deltaset.New[item]("b", window, window)}
		truth := map[string]item{}
		type reader struct {
			deltasettest.Reader

			selects deltaset.Filter
		}
		only := func(name string) deltaset.Filter { return func(group string) bool { return group == name } }
		readers := []*reader{{}, {}, {selects: only("g0")}, {selects: only("g1")}, {selects: only("nothing")}}
		want := func(filter deltaset.Filter) map[string]deltaset.Digest {
			set := map[string]deltaset.Digest{}
			for key, i := range truth {
				if filter == nil || filter(i.group) {
					_, _, set[key] = i.Identity()
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
							if s.Remove(i.group, i.key) != existed {
								t.Fatalf("Remove(%s) did not return %t", i.key, existed)
							}
						}
						continue
					}
					truth[i.key] = i
					for _, s := range replicas {
						if s.Put(i) != (!existed || previous != i) {
							t.Fatalf("unexpected result of Put(%v); before: %v (existed: %t)", i, previous, existed)
						}
					}
				}
			},
			"read": func(t *rapid.T) {
				r, s := rapid.SampledFrom(readers).Draw(t, "reader"), rapid.SampledFrom(replicas).Draw(t, "replica")
				before := r.Position
				d := s.Since(before, r.selects)
				if err := deltasettest.Apply(&r.Reader, d); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(r.Set, want(r.selects)) {
					t.Fatalf("the reader has %v, want %v", r.Set, want(r.selects))
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
			"change filter": func(t *rapid.T) {
				r := rapid.SampledFrom(readers).Draw(t, "reader")
				r.selects = rapid.SampledFrom([]deltaset.Filter{nil, only("g0"), only("g2")}).Draw(t, "selection")
				if err := deltasettest.Apply(&r.Reader, replicas[0].Since(r.Position, r.selects)); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(r.Set, want(r.selects)) {
					t.Fatalf("with another filter the reader has %v, want %v", r.Set, want(r.selects))
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
				d := replicas[0].Since(&forged, r.selects)
				if !d.Reset && forged.Digest != r.Position.Digest {
					t.Fatalf("a forged digest was accepted: %+v", d)
				}
				fresh := deltasettest.Reader{Set: r.Set}
				if err := deltasettest.Apply(&fresh, d); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				for _, s := range replicas {
					var fresh deltasettest.Reader
					if err := deltasettest.Apply(&fresh, s.Since(nil, nil)); err != nil {
						t.Fatal(err)
					}
					if !maps.Equal(fresh.Set, want(nil)) {
						t.Fatalf("the set has %v, want %v", fresh.Set, want(nil))
					}
				}
			},
		})
	})
}
