package stream

import (
	"fmt"
	"maps"
	"slices"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// strictReader is a client of a set, by rules R1 to R7 of the contract: its entries and its position.
type strictReader struct {
	set      map[string]contract.Digest // by key
	position *Position                  // nil: it has nothing
}

// apply applies changes, or returns an error that names the first violation.
func apply[T any](r *strictReader, d *Changes[T]) error {
	staged := map[string]contract.Digest{}
	if !d.Reset {
		maps.Copy(staged, r.set)
	}
	if !slices.IsSorted(d.Removed) || !slices.IsSortedFunc(d.Upserts, (*Entry[T]).compare) {
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
		if seen[e.Key] || removed[e.Key] {
			return fmt.Errorf("%s is in the changes twice", e.Key)
		}
		seen[e.Key] = true
		staged[e.Key] = e.Fingerprint
	}
	var sum contract.Digest
	for _, f := range staged {
		sum.XOR(f)
	}
	if sum != d.At.Digest || len(staged) != d.Count {
		return fmt.Errorf("the reader has %d entries and digest %x, the changes have %d and %x", len(staged), sum, d.Count, d.At.Digest)
	}
	if r.position != nil && r.position.Epoch == d.At.Epoch && d.At.Revision < r.position.Revision {
		return fmt.Errorf("the revision goes back from %d to %d", r.position.Revision, d.At.Revision)
	}
	at := d.At
	r.set, r.position = staged, &at
	return nil
}
