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

// Looks makes looks at several watches at once, which together are one source: a look is
// complete when every watch has caught up with it. Each watch has a LIST of its own, since
// resourceVersions of two resources need not be comparable.
type Looks struct {
	watches []watcher

	mu   sync.Mutex
	last uint64
	open []mark // that the watches may not have caught up with, in order

	heardAt time.Time // when the one that was silent for longest had last spoken
	reached uint64
}

type watcher interface {
	light(ctx context.Context) (uint64, error)
	full(ctx context.Context) error
	count(look, result string)
}

// mark is a look and the resourceVersion that each watch has to reach.
type mark struct {
	number uint64
	rvs    []uint64
}

// most marks are kept open: beyond, those between the earliest and the latest are of no use.
const most = 8

// NewLooks returns looks at these watches.
func NewLooks(watches ...watcher) *Looks { return &Looks{watches: watches} }

// Look asks the API server whether the watches can be believed. Light makes a quorum LIST
// with limit=1 of each. Full reads all objects in pages by quorum and returns nil once what
// the watches have told equals them; if that does not come about in time, it is an error and they
// are read anew. A full look takes as long as its pages need, within bounds. Take after it returned holds everything that it compared with.
func (l *Looks) Look(ctx context.Context, look roster.Look) (uint64, error) {
	rvs := make([]uint64, len(l.watches))
	for i, w := range l.watches {
		var err error
		switch look {
		case roster.Light:
			rvs[i], err = w.light(ctx)
		case roster.Full:
			err = w.full(ctx)
		default:
			return 0, fmt.Errorf("no such look: %d", look)
		}
		result := "ok"
		if err != nil {
			result = "failed"
			if errors.Is(err, errDisagrees) {
				result = "disagreed"
			}
		}
		w.count(look.String(), result)
		if err != nil {
			return 0, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	l.open = append(l.open, mark{l.last, rvs})
	if len(l.open) > most {
		l.open = append(l.open[:1], l.open[2:]...)
	}
	return l.last, nil
}

// Heard takes in how far each watch has come and when it last spoke, in their order. It
// returns when the one that has been silent for longest last spoke, zero if that is known
// already, and the highest mark that all have caught up with. A store that was restored from a
// backup goes back: then a later mark is reached, and stands for those before it.
func (l *Looks) Heard(at []time.Time, rvs []uint64) (heardAt time.Time, reached uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.reached
	for i, m := range slices.Backward(l.open) {
		if m.within(rvs) {
			l.reached = max(l.reached, m.number)
			l.open = append(l.open[:0], l.open[i+1:]...)
			break
		}
	}
	oldest := at[0]
	for _, t := range at[1:] {
		if t.Before(oldest) {
			oldest = t
		}
	}
	if oldest.IsZero() || oldest.Equal(l.heardAt) && l.reached == before {
		return time.Time{}, l.reached
	}
	l.heardAt = oldest
	return oldest, l.reached
}

func (m mark) within(rvs []uint64) bool {
	for i, rv := range m.rvs {
		if rvs[i] < rv {
			return false
		}
	}
	return true
}

func (w *Watch[T]) count(look, result string) {
	w.cfg.Metrics.looks.WithLabelValues(w.kind.Resource, look, result).Inc()
}
