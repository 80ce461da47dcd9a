package kubewatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// Verifier makes looks at several watches at once, which together are one source: a look is
// complete when every watch has caught up with it. Each watch has a LIST of its own, since
// resourceVersions of two resources need not be comparable.
type Verifier struct {
	watches []verifiable

	mu         sync.Mutex
	lastNumber uint64
	pending    []pendingVerification // that the watches may not have caught up with, in order

	lastContact time.Time // when the one that was silent for longest had last spoken
	verified    uint64
}

type verifiable interface {
	verifyLight(ctx context.Context) (uint64, error)
	verifyFull(ctx context.Context) error
	countVerification(look, result string)
}

// pendingVerification is a look and the resourceVersion that each watch has to reach.
type pendingVerification struct {
	number           uint64
	resourceVersions []uint64
}

// maxPending marks are kept open: beyond, those between the earliest and the latest are of no use.
const maxPending = 8

// NewVerifier returns looks at these watches.
func NewVerifier(watches ...verifiable) *Verifier { return &Verifier{watches: watches} }

// Verify asks the API server whether the watches can be believed. Light makes a quorum LIST
// with limit=1 of each. Full reads all objects in pages by quorum and returns nil once what
// the watches have told equals them; if that does not come about in time, it is an error and they
// are read anew. A full look takes as long as its pages need, within bounds. Take after it returned holds everything that it compared with.
func (l *Verifier) Verify(ctx context.Context, look roster.Look) (uint64, error) {
	rvs := make([]uint64, len(l.watches))
	for i, w := range l.watches {
		var err error
		switch look {
		case roster.Light:
			rvs[i], err = w.verifyLight(ctx)
		case roster.Full:
			err = w.verifyFull(ctx)
		default:
			return 0, fmt.Errorf("no such look: %d", look)
		}
		result := "ok"
		if err != nil {
			result = "failed"
			if errors.Is(err, errInconsistent) {
				result = "disagreed"
			}
		}
		w.countVerification(look.String(), result)
		if err != nil {
			return 0, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastNumber++
	l.pending = append(l.pending, pendingVerification{l.lastNumber, rvs})
	if len(l.pending) > maxPending {
		l.pending = append(l.pending[:1], l.pending[2:]...)
	}
	return l.lastNumber, nil
}

// Progress takes in how far each watch has come and when it last spoke, in their order. It
// returns when the one that has been silent for longest last spoke, zero if that is known
// already, and the highest mark that all have caught up with. A store that was restored from a
// backup goes back: then a later mark is reached, and stands for those before it.
func (l *Verifier) Progress(at []time.Time, rvs []uint64) (heardAt time.Time, reached uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.verified
	for i, m := range slices.Backward(l.pending) {
		if m.isReachedBy(rvs) {
			l.verified = max(l.verified, m.number)
			l.pending = append(l.pending[:0], l.pending[i+1:]...)
			break
		}
	}
	oldest := at[0]
	for _, t := range at[1:] {
		if t.Before(oldest) {
			oldest = t
		}
	}
	if oldest.IsZero() || oldest.Equal(l.lastContact) && l.verified == before {
		return time.Time{}, l.verified
	}
	l.lastContact = oldest
	return oldest, l.verified
}

func (m pendingVerification) isReachedBy(rvs []uint64) bool {
	for i, rv := range m.resourceVersions {
		if rvs[i] < rv {
			return false
		}
	}
	return true
}

func (w *Watch[T]) countVerification(look, result string) {
	w.cfg.Metrics.verifications.WithLabelValues(w.kind.Resource, look, result).Inc()
}
