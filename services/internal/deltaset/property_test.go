package deltaset_test

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/internal/deltaset/deltasettest"
)

// item says a number.
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

// Readers of any selection come and go at random, each as far behind as it likes, some with cursors
// of another replica or with a digest that no set ever had; each ends with the truth in one answer.
func TestR10ReaderCatchesUpFromAnyPosition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 8
		replicas := []*deltaset.Set[item]{deltaset.New[item]("a", window), deltaset.New[item]("b", window)}
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
					i := item{fmt.Sprintf("g%d", group), fmt.Sprintf("g%d/%d", group, rapid.IntRange(0, 3).Draw(t, "key")), rapid.IntRange(0, 2).Draw(t, "says")}
					was, existed := truth[i.key]
					if rapid.Bool().Draw(t, "gone") {
						delete(truth, i.key)
						for _, s := range replicas {
							if s.Remove(i.group, i.key) != existed {
								t.Fatalf("removing %s, which is there: %t, is reported otherwise", i.key, existed)
							}
						}
						continue
					}
					truth[i.key] = i
					for _, s := range replicas {
						if s.Put(i) != (!existed || was != i) {
							t.Fatalf("putting %v in the place of %v (there: %t) is reported otherwise", i, was, existed)
						}
					}
				}
			},
			"read": func(t *rapid.T) {
				r, s := rapid.SampledFrom(readers).Draw(t, "reader"), rapid.SampledFrom(replicas).Draw(t, "replica")
				before := r.Position
				a := s.Since(before, r.selects)
				if err := deltasettest.Apply(&r.Reader, a); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(r.Set, want(r.selects)) {
					t.Fatalf("after a read the reader has %v, the truth is %v", r.Set, want(r.selects))
				}
				if before != nil && before.Epoch == a.At.Epoch {
					behind := a.At.Revision - before.Revision
					if entries := uint64(len(a.Upserts) + len(a.Removed)); !a.Reset && entries > behind {
						t.Fatalf("%d entries for %d changes", entries, behind)
					}
					if a.Reset && behind <= window {
						t.Fatalf("a reset for a reader who is %d changes behind", behind)
					}
				}
			},
			"select otherwise": func(t *rapid.T) {
				r := rapid.SampledFrom(readers).Draw(t, "reader")
				r.selects = rapid.SampledFrom([]deltaset.Filter{nil, only("g0"), only("g2")}).Draw(t, "selection")
				if err := deltasettest.Apply(&r.Reader, replicas[0].Since(r.Position, r.selects)); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(r.Set, want(r.selects)) {
					t.Fatalf("after another selection the reader has %v, the truth is %v", r.Set, want(r.selects))
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
				a := replicas[0].Since(&forged, r.selects)
				if !a.Reset && forged.Digest != r.Position.Digest {
					t.Fatalf("a forged digest was answered as if it were known: %+v", a)
				}
				fresh := deltasettest.Reader{Set: r.Set}
				if err := deltasettest.Apply(&fresh, a); err != nil {
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
						t.Fatalf("the set has %v, the truth is %v", fresh.Set, want(nil))
					}
				}
			},
		})
	})
}
