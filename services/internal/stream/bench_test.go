package stream

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// numbered returns a benchmark entry.
func numbered(i int, state uint64) *Entry[int] {
	e := &Entry[int]{Key: fmt.Sprintf("standardnodes-%06d", i), Value: i}
	binary.LittleEndian.PutUint64(e.Fingerprint[:], state)
	copy(e.Fingerprint[8:], e.Key)
	return e
}

func newFilledSet(n int) *Set[int] {
	s := NewSet[int]("epoch", Window, Window)
	entries := make([]*Entry[int], n)
	for i := range entries {
		entries[i] = numbered(i, 0)
	}
	s.Replace("", entries)
	return s
}

func benchmarkSizes(b *testing.B, run func(b *testing.B, entries int)) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint("entries=", n), func(b *testing.B) { run(b, n) })
	}
}

// BenchmarkChange changes one entry and updates one reader that was up to date.
func BenchmarkChange(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, n int) {
		s := newFilledSet(n)
		at := s.Since(nil, nil).At
		both := [2]*Entry[int]{numbered(n/2, 0), numbered(n/2, 1)}
		b.ReportAllocs()
		for i := 1; b.Loop(); i++ {
			put(s, both[i%2])
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
		s := newFilledSet(n)
		at := s.Since(nil, nil).At
		for i := range 100 {
			put(s, numbered(i, uint64(i+1)))
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
		s := newFilledSet(n)
		both := [2]*Entry[int]{numbered(n/2, 0), numbered(n/2, 1)}
		b.ReportAllocs()
		for i := 1; b.Loop(); i++ {
			put(s, both[i%2])
			if d := s.Since(nil, nil); len(d.Upserts) != n {
				b.Fatal("not the complete set")
			}
		}
	})
}
