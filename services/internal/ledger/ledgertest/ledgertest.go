// Package ledgertest is a reader that holds a ledger to the contract: it does what rules R1 to
// R7 ask of a client, and nothing more. It refuses whatever a client would call a breach.
package ledgertest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/slicefeed/slicefeed/services/internal/ledger"
)

// Reader is a client of a set: what it holds, and where it stands.
type Reader struct {
	Set map[string]ledger.Digest // by key
	At  *ledger.Position         // nil: nowhere
}

// Read applies an answer. Its error says what is wrong with it.
func Read[E ledger.Entry](r *Reader, a ledger.Answer[E]) error {
	staged := map[string]ledger.Digest{}
	if !a.Reset {
		maps.Copy(staged, r.Set)
	}
	if !slices.IsSorted(a.Removed) || !slices.IsSortedFunc(a.Upserts, before[E]) {
		return fmt.Errorf("out of order: upserts %v, removed %v", a.Upserts, a.Removed)
	}
	removed := map[string]bool{}
	for _, key := range a.Removed {
		if _, ok := staged[key]; !ok {
			return fmt.Errorf("removal of %s, which the reader does not have", key)
		}
		delete(staged, key)
		removed[key] = true
	}
	seen := map[string]bool{}
	for _, e := range a.Upserts {
		_, key, fingerprint := e.Identity()
		if seen[key] || removed[key] {
			return fmt.Errorf("%s is told twice", key)
		}
		seen[key] = true
		staged[key] = fingerprint
	}
	var sum ledger.Digest
	for _, f := range staged {
		sum.Toggle(f)
	}
	if sum != a.At.Digest || len(staged) != a.Count {
		return fmt.Errorf("the reader has %d entries and digest %x, told are %d and %x", len(staged), sum, a.Count, a.At.Digest)
	}
	if r.At != nil && r.At.Epoch == a.At.Epoch && a.At.Revision < r.At.Revision {
		return fmt.Errorf("the revision goes back from %d to %d", r.At.Revision, a.At.Revision)
	}
	at := a.At
	r.Set, r.At = staged, &at
	return nil
}

func before[E ledger.Entry](a, b E) int {
	groupA, keyA, _ := a.Identity()
	groupB, keyB, _ := b.Identity()
	return cmp.Or(cmp.Compare(groupA, groupB), cmp.Compare(keyA, keyB))
}
