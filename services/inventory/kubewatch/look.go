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
	maxIdle         = 150 * time.Second // an idle watch speaks at least every 120s
	recheckInterval = 20 * time.Millisecond
	pageSize        = 500
)

// A full look takes as long as its pages need: a fixed time would fail for ever where a fleet is
// large or its API server slow. What is bounded is each step.
const (
	requestTimeout = 5 * time.Second  // for one object
	pageTimeout    = 10 * time.Second // for a page of many
	listTimeout    = 2 * time.Minute  // for all pages: a continue token lives for about 5 minutes
	minCatchUp     = 10 * time.Second
)

// catchUpTimeout is how long a watch may take to agree with a listing that took so long: its own list,
// which it may have to read first, takes about as long.
func catchUpTimeout(listing time.Duration) time.Duration { return max(listing, minCatchUp) }

// errInconsistent: the API server answered, and the watch does not come to say the same.
var errInconsistent = errors.New("the watch disagrees with the API server")

// verifyLight returns the resourceVersion of a quorum LIST with limit=1.
func (w *Watch[T]) verifyLight(ctx context.Context) (uint64, error) {
	list, err := w.listPage(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list one of the %s: %w", w.kind.Resource, err)
	}
	rv := parseResourceVersion(list.GetResourceVersion())
	if rv == 0 {
		return 0, fmt.Errorf("list one of the %s: %.40q is no resourceVersion", w.kind.Resource, list.GetResourceVersion())
	}
	return rv, nil
}

// verifyFull reads all objects in pages by quorum, and returns nil once what the watch has told
// equals them. If that does not come about in time (see settling), or the watch was silent for too
// long, they are read anew.
func (w *Watch[T]) verifyFull(ctx context.Context) error {
	w.tracker.beginVerification()
	defer w.tracker.endVerification()
	began := time.Now()
	listed, rv, err := w.listAll(ctx)
	if err != nil {
		return fmt.Errorf("list all %s: %w", w.kind.Resource, err)
	}
	late := time.NewTimer(catchUpTimeout(time.Since(began)))
	defer late.Stop()
	var open map[string]struct{} // nil: nothing compared yet
	for {
		if open = w.tracker.mismatches(listed, rv, open); len(open) == 0 && open != nil {
			if w.tracker.idleFor() > maxIdle {
				w.requestRelist() // nothing was missed yet, by a watch that is dead
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			if open == nil {
				return fmt.Errorf("compare %s: %w: it has told nothing yet", w.kind.Resource, errInconsistent)
			}
			w.requestRelist()
			return fmt.Errorf("compare %s: %w about %d of them, among them %.80q",
				w.kind.Resource, errInconsistent, len(open), slices.Min(slices.Collect(maps.Keys(open))))
		case <-time.After(recheckInterval):
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
		page, err := w.listPage(ctx, options)
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
				listed[of.GetName()] = version{string(of.GetUID()), parseResourceVersion(of.GetResourceVersion())}
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		if page.GetContinue() == "" {
			return listed, parseResourceVersion(page.GetResourceVersion()), nil
		}
		options.Continue = page.GetContinue()
	}
}

// page is an answer to a LIST.
type page struct {
	metav1.ListInterface

	object runtime.Object
}

func (w *Watch[T]) listPage(ctx context.Context, options metav1.ListOptions) (page, error) {
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

func (t *tracker[T]) idleFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.lastContact)
}

func (t *tracker[T]) beginVerification() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.verifying++
}

func (t *tracker[T]) endVerification() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verifying--; t.verifying == 0 {
		clear(t.deleted)
	}
}

// mismatches returns the names about which the tracker does not bear out a listing of this
// resourceVersion: of all, or of those still open; nil when nothing was told yet. What the
// tracker knows to be newer than the listing bears it out: a busy cluster never stands still to be compared.
func (t *tracker[T]) mismatches(listed map[string]version, rv uint64, open map[string]struct{}) map[string]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.synced {
		return nil
	}
	differ := map[string]struct{}{}
	check := func(name string) {
		if !t.confirms(name, listed, rv) {
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
	for name := range t.objects {
		check(name)
	}
	return differ
}

func (t *tracker[T]) confirms(name string, listed map[string]version, rv uint64) bool {
	want, isListed := listed[name]
	have, isKnown := t.objects[name]
	switch {
	case isListed && isKnown:
		return have.version == want || have.rv > want.rv && have.rv > rv
	case isListed:
		return t.deleted[name] > rv // deleted since
	case isKnown:
		return have.rv > rv // created since
	}
	return true
}
