package kube

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Verifier verifies several watches that together are one source: a verification is complete
// when every watch has caught up with it. Each watch has a LIST of its own, because
// resourceVersions of different resources need not be comparable.
type Verifier struct {
	watches []Verifiable

	mu         sync.Mutex
	lastNumber uint64                // of the latest verification
	pending    []pendingVerification // in order; the watches may not have caught up with them

	lastContact time.Time // of the watch that has been idle for longest
	verified    uint64    // the highest number that all watches have caught up with
}

// Verifiable is a watch.
type Verifiable interface {
	verify(ctx context.Context, mode roster.Verification) (rv uint64, err error)
}

// pendingVerification is the number of a verification and the resourceVersion that each watch
// has to reach.
type pendingVerification struct {
	number           uint64
	resourceVersions []uint64
}

// maxPending limits the pending verifications. Beyond it the second oldest is dropped: the
// oldest stays, so that watches that lag can still complete one.
const maxPending = 8

// NewVerifier returns a verifier of these watches.
func NewVerifier(watches ...Verifiable) *Verifier { return &Verifier{watches: watches} }

// Verify checks with the API server that the watches are current, and returns the number of the
// verification. A light one makes a quorum LIST with limit=1 of each; it is complete when
// Progress reports its number. A full one reads all objects with quorum and returns nil once the
// reported objects equal them; if they do not in time, it returns an error and relists. A Take
// after a full verification includes everything that was compared.
func (v *Verifier) Verify(ctx context.Context, mode roster.Verification) (number uint64, err error) {
	rvs := make([]uint64, len(v.watches))
	for i, w := range v.watches {
		if rvs[i], err = w.verify(ctx, mode); err != nil {
			return 0, err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lastNumber++
	v.pending = append(v.pending, pendingVerification{v.lastNumber, rvs})
	if len(v.pending) > maxPending {
		v.pending = append(v.pending[:1], v.pending[2:]...)
	}
	return v.lastNumber, nil
}

// Progress records how far the watches have come, in their order. It returns the oldest contact, or zero if
// nothing has changed since the previous call, and the highest verification that all watches have caught up
// with. An API server that was restored from a backup goes back to lower resourceVersions: then
// a later verification completes the ones before it.
func (v *Verifier) Progress(reached ...Progress) (lastContact time.Time, verified uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.verified
	for i, p := range slices.Backward(v.pending) {
		if p.isReachedBy(reached) {
			v.verified = max(v.verified, p.number)
			v.pending = append(v.pending[:0], v.pending[i+1:]...)
			break
		}
	}
	oldest := slices.MinFunc(reached, func(a, b Progress) int { return a.LastContact.Compare(b.LastContact) }).LastContact
	if oldest.IsZero() || oldest.Equal(v.lastContact) && v.verified == before {
		return time.Time{}, v.verified
	}
	v.lastContact = oldest
	return oldest, v.verified
}

func (p pendingVerification) isReachedBy(reached []Progress) bool {
	for i, rv := range p.resourceVersions {
		if reached[i].ResourceVersion < rv {
			return false
		}
	}
	return true
}
