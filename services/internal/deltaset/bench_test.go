package deltaset

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// item is a benchmark entry.
type item struct {
	key   string
	state uint64
}

func (i *item) Identity() (group, key string, fingerprint Digest) {
	binary.LittleEndian.PutUint64(fingerprint[:], i.state)
	copy(fingerprint[8:], i.key)
	return "", i.key, fingerprint
}

func newFilledSet(n int) (*Set[*item], []*item) {
	s := New[*item]("epoch", Window, Window)
	items := make([]*item, n)
	for i := range items {
		items[i] = &item{key: fmt.Sprintf("standardnodes-%06d", i)}
		s.Put(items[i])
	}
	return s, items
}

func benchmarkSizes(b *testing.B, run func(b *testing.B, entries int)) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint("entries=", n), func(b *testing.B) { run(b, n) })
	}
}

// BenchmarkChange changes one entry and updates one reader that was up to date.
func BenchmarkChange(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, n int) {
		s, items := newFilledSet(n)
		at := s.Since(nil, nil).At
		both := [2]*item{items[n/2], {key: items[n/2].key, state: 1}}
		b.ReportAllocs()
		for i := 1; b.Loop(); i++ {
			s.Put(both[i%2])
			d := s.Since(&at, nil)
			if len(d.Upserts) != 1 {
				b.Fatal("not one upsert")
			}
			at = d.At
		}
	})
}

// BenchmarkResume resumes a reader that is 100 changes behind.
func BenchmarkResume(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, n int) {
		s, items := newFilledSet(n)
		at := s.Since(nil, nil).At
		for i, e := range items[:100] {
			s.Put(&item{key: e.key, state: uint64(i + 1)})
		}
		b.ReportAllocs()
		for b.Loop() {
			if d := s.Since(&at, nil); len(d.Upserts) != 100 {
				b.Fatal("not 100 upserts")
			}
		}
	})
}

// BenchmarkReset sends the complete set to a new reader after each change.
func BenchmarkReset(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, n int) {
		s, items := newFilledSet(n)
		both := [2]*item{items[n/2], {key: items[n/2].key, state: 1}}
		b.ReportAllocs()
		for i := 1; b.Loop(); i++ {
			s.Put(both[i%2])
			if d := s.Since(nil, nil); len(d.Upserts) != n {
				b.Fatal("not the complete set")
			}
		}
	})
}

func BenchmarkDigest(b *testing.B) {
	var d Digest
	b.ReportAllocs()
	for b.Loop() {
		c := make(Hasher, 0, 256)
		c.AddString("standardnodes-000001")
		c.AddUint(1)
		c.AddBools(true, false)
		d.XOR(c.Fingerprint())
	}
}
