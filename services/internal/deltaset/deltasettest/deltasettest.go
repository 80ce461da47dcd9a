// Package deltasettest has a strict reader of a deltaset: it applies deltas by rules R1 to R7 of the
// contract, and rejects whatever a client would call a protocol violation.
package deltasettest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
)

// Reader is a client of a set: its entries and its position.
type Reader struct {
	Set      map[string]deltaset.Digest // by key
	Position *deltaset.Position         // nil: it has nothing
}

// Apply applies a delta, or returns an error that names the first violation.
func Apply[E deltaset.Entry](r *Reader, d deltaset.Delta[E]) error {
	staged := map[string]deltaset.Digest{}
	if !d.Reset {
		maps.Copy(staged, r.Set)
	}
	if !slices.IsSorted(d.Removed) || !slices.IsSortedFunc(d.Upserts, entryLess[E]) {
		return fmt.Errorf("out of order: upserts %v, removed %v", d.Upserts, d.Removed)
	}
	removed := map[string]bool{}
	for _, key := range d.Removed {
		if _, ok := staged[key]; !ok {
			return fmt.Errorf("removal of %s, which the reader does not have", key)
		}
		delete(staged, key)
		removed[key] = true
	}
	seen := map[string]bool{}
	for _, e := range d.Upserts {
		_, key, fingerprint := e.Identity()
		if seen[key] || removed[key] {
			return fmt.Errorf("%s is in the delta twice", key)
		}
		seen[key] = true
		staged[key] = fingerprint
	}
	var sum deltaset.Digest
	for _, f := range staged {
		sum.XOR(f)
	}
	if sum != d.At.Digest || len(staged) != d.Count {
		return fmt.Errorf("the reader has %d entries and digest %x, the delta has %d and %x", len(staged), sum, d.Count, d.At.Digest)
	}
	if r.Position != nil && r.Position.Epoch == d.At.Epoch && d.At.Revision < r.Position.Revision {
		return fmt.Errorf("the revision goes back from %d to %d", r.Position.Revision, d.At.Revision)
	}
	at := d.At
	r.Set, r.Position = staged, &at
	return nil
}

func entryLess[E deltaset.Entry](a, b E) int {
	groupA, keyA, _ := a.Identity()
	groupB, keyB, _ := b.Identity()
	return cmp.Or(cmp.Compare(groupA, groupB), cmp.Compare(keyA, keyB))
}
