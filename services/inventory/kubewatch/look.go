package kubewatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	silence  = 150 * time.Second // an idle watch speaks at least every 120s
	recheck  = 20 * time.Millisecond
	pageSize = 500
)

// A full look takes as long as its pages need: a fixed time would fail for ever where a fleet is
// large or its API server slow. What is bounded is each step.
const (
	requestTimeout = 5 * time.Second  // for one object
	pageTimeout    = 10 * time.Second // for a page of many
	listTimeout    = 2 * time.Minute  // for all pages: a continue token lives for about 5 minutes
	leastSettling  = 10 * time.Second
)

// settling is how long a watch may take to agree with a listing that took so long: its own list,
// which it may have to read first, takes about as long.
func settling(listing time.Duration) time.Duration { return max(listing, leastSettling) }

// errDisagrees: the API server answered, and the watch does not come to say the same.
var errDisagrees = errors.New("the watch disagrees with the API server")

// light returns the resourceVersion of a quorum LIST with limit=1.
func (w *Watch[T]) light(ctx context.Context) (uint64, error) {
	list, err := w.list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list one of the %s: %w", w.kind.Resource, err)
	}
	rv := number(list.GetResourceVersion())
	if rv == 0 {
		return 0, fmt.Errorf("list one of the %s: %.40q is no resourceVersion", w.kind.Resource, list.GetResourceVersion())
	}
	return rv, nil
}

// full reads all objects in pages by quorum, and returns nil once what the watch has told
// equals them. If that does not come about in time (see settling), or the watch was silent for too
// long, they are read anew.
func (w *Watch[T]) full(ctx context.Context) error {
	w.tracker.startLook()
	defer w.tracker.endLook()
	began := time.Now()
	listed, rv, err := w.listAll(ctx)
	if err != nil {
		return fmt.Errorf("list all %s: %w", w.kind.Resource, err)
	}
	late := time.NewTimer(settling(time.Since(began)))
	defer late.Stop()
	var open map[string]struct{} // nil: nothing compared yet
	for {
		if open = w.tracker.differing(listed, rv, open); len(open) == 0 && open != nil {
			if w.tracker.silentFor() > silence {
				w.readAnew() // nothing was missed yet, by a watch that is dead
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			if open == nil {
				return fmt.Errorf("compare %s: %w: it has told nothing yet", w.kind.Resource, errDisagrees)
			}
			w.readAnew()
			return fmt.Errorf("compare %s: %w about %d of them, among them %.80q",
				w.kind.Resource, errDisagrees, len(open), slices.Min(slices.Collect(maps.Keys(open))))
		case <-time.After(recheck):
		}
	}
}

// listAll reads all objects page by page. The first page names no resourceVersion, which makes
// it a quorum read, and the others continue its snapshot.
func (w *Watch[T]) listAll(ctx context.Context) (map[string]version, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	listed := map[string]version{}
	options := metav1.ListOptions{Limit: pageSize}
	again, pages := false, 0
	for {
		page, err := w.list(ctx, options)
		if apierrors.IsResourceExpired(err) && options.Continue != "" && !again {
			// The snapshot is gone: once more from the start. Without end, a server that always
			// forgets would be asked hundreds of times a second; the next look comes anyhow.
			again = true
			clear(listed)
			pages, options.Continue = 0, ""
			continue
		}
		if err != nil && pages > 0 {
			err = fmt.Errorf("after %d objects in %d pages: %w", len(listed), pages, err)
		}
		if err != nil {
			return nil, 0, err
		}
		pages++
		err = meta.EachListItem(page.object, func(o runtime.Object) error {
			of, err := meta.Accessor(o)
			if err == nil && of.GetName() != "" {
				listed[of.GetName()] = version{string(of.GetUID()), number(of.GetResourceVersion())}
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		if page.GetContinue() == "" {
			return listed, number(page.GetResourceVersion()), nil
		}
		options.Continue = page.GetContinue()
	}
}

// page is an answer to a LIST.
type page struct {
	metav1.ListInterface

	object runtime.Object
}

func (w *Watch[T]) list(ctx context.Context, options metav1.ListOptions) (page, error) {
	timeout := pageTimeout
	if options.Limit == 1 {
		timeout = requestTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := w.kind.List(ctx, options)
	if err != nil {
		return page{}, err
	}
	of, err := meta.ListAccessor(list)
	return page{of, list}, err
}

func (t *tracker[T]) silentFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.heardAt)
}

func (t *tracker[T]) startLook() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookers++
}

func (t *tracker[T]) endLook() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lookers--; t.lookers == 0 {
		clear(t.gone)
	}
}

// differing returns the names about which the tracker does not bear out a listing of this
// resourceVersion: of all, or of those still open; nil when nothing was told yet. What the
// tracker knows to be newer than the listing bears it out: a busy cluster never stands still to be compared.
func (t *tracker[T]) differing(listed map[string]version, rv uint64, open map[string]struct{}) map[string]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.synced {
		return nil
	}
	differ := map[string]struct{}{}
	check := func(name string) {
		if !t.bearsOut(name, listed, rv) {
			differ[name] = struct{}{}
		}
	}
	if open != nil {
		for name := range open {
			check(name)
		}
		return differ
	}
	for name := range listed {
		check(name)
	}
	for name := range t.known {
		check(name)
	}
	return differ
}

func (t *tracker[T]) bearsOut(name string, listed map[string]version, rv uint64) bool {
	want, isListed := listed[name]
	have, isKnown := t.known[name]
	switch {
	case isListed && isKnown:
		return have.version == want || have.rv > want.rv && have.rv > rv
	case isListed:
		return t.gone[name] > rv // deleted since
	case isKnown:
		return have.rv > rv // created since
	}
	return true
}
