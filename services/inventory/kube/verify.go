package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

const (
	recheckInterval = 20 * time.Millisecond
	pageSize        = 500
)

// Each step of a full verification has a timeout, but not their sum: a fixed total would fail
// on every attempt where a cluster is large or its API server slow.
const (
	requestTimeout = 5 * time.Second  // for one object
	pageTimeout    = 10 * time.Second // for a page of many
	listTimeout    = 2 * time.Minute  // for all pages: a continue token expires after about 5 minutes
	minCatchUp     = 10 * time.Second
)

// errInconsistent means that the API server answered, and that the watch does not catch up
// with the answer.
var errInconsistent = errors.New("watch is inconsistent with the API server")

// verify makes a verification and counts it. Only a light one has a resourceVersion to reach.
func (w *Watch[T]) verify(ctx context.Context, mode roster.Verification) (rv uint64, err error) {
	if mode == roster.LightVerification {
		rv, err = w.verifyLight(ctx)
	} else {
		err = w.verifyFull(ctx)
	}
	result := "ok"
	if errors.Is(err, errInconsistent) {
		result = "inconsistent"
	} else if err != nil {
		result = "failed"
	}
	w.cfg.Metrics.verifications.WithLabelValues(w.resource, mode.String(), result).Inc()
	return rv, err
}

// verifyLight returns the resourceVersion of a quorum LIST with limit=1, which the watch has to reach.
func (w *Watch[T]) verifyLight(ctx context.Context) (uint64, error) {
	_, list, err := w.listPage(ctx, metav1.ListOptions{Limit: 1}, requestTimeout)
	if err != nil {
		return 0, fmt.Errorf("list one object of %s: %w", w.resource, err)
	}
	return parseResourceVersion(list.GetResourceVersion()), nil
}

// verifyFull reads all objects with quorum, and returns nil once the reported objects equal
// them. If they still differ after as long as the listing took, it requests a relist: the watch may still be reading its
// own list, which takes about as long. Verifications must not overlap, or deletions look like differences; the roster
// requests one at a time.
func (w *Watch[T]) verifyFull(ctx context.Context) error {
	w.tracker.recordDeletions(map[string]uint64{})
	defer w.tracker.recordDeletions(nil)
	startedAt := time.Now()
	listed, rv, err := w.listAll(ctx)
	if err != nil {
		return fmt.Errorf("list all %s: %w", w.resource, err)
	}
	var differ sets.Set[string] // nil: not compared yet
	patience := max(time.Since(startedAt), w.minCatchUp)
	err = wait.PollUntilContextTimeout(ctx, recheckInterval, patience, true, func(context.Context) (bool, error) {
		differ = w.tracker.findMismatches(listed, rv, differ)
		return differ != nil && len(differ) == 0, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case differ == nil:
		return fmt.Errorf("compare %s: %w: the watch has not received a list yet", w.resource, errInconsistent)
	}
	w.requestRelist()
	return fmt.Errorf(
		"compare %s: %w: %s, for example %.80q",
		w.resource,
		errInconsistent,
		display.Count(len(differ), "object differs", "objects differ"),
		sets.List(differ)[0],
	)
}

// listAll reads all objects page by page. The first page names no resourceVersion, which makes
// it a quorum read; the others continue its snapshot. If that expires, it starts over once: an API server whose
// tokens always expire would get hundreds of requests per second.
func (w *Watch[T]) listAll(ctx context.Context) (listed map[string]version, rv uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	options := metav1.ListOptions{Limit: pageSize}
	for restarted := false; listed == nil || options.Continue != ""; {
		page, metadata, err := w.listPage(ctx, options, pageTimeout)
		switch {
		case apierrors.IsResourceExpired(err) && options.Continue != "" && !restarted:
			restarted, listed, options.Continue = true, nil, ""
			continue
		case err != nil && listed != nil:
			return nil, 0, fmt.Errorf("after %s: %w", display.Count(len(listed), "object", "objects"), err)
		case err != nil:
			return nil, 0, err
		case listed == nil:
			listed = map[string]version{}
		}
		err = meta.EachListItem(page, func(o runtime.Object) error {
			item, err := meta.Accessor(o)
			if err == nil && item.GetName() != "" {
				listed[nameOf(item)] = versionOf(item)
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		options.Continue, rv = metadata.GetContinue(), parseResourceVersion(metadata.GetResourceVersion())
	}
	return listed, rv, nil
}

// listPage reads a page. Nothing is older than what the watch has reached, unless etcd was restored: then the watch has
// what never was.
func (w *Watch[T]) listPage(
	ctx context.Context, options metav1.ListOptions, timeout time.Duration,
) (page runtime.Object, metadata metav1.ListInterface, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reached := w.tracker.reachedVersion()
	if page, err = w.requests.ListWithContext(ctx, options); err != nil {
		return nil, nil, err
	}
	if metadata, err = meta.ListAccessor(page); err != nil {
		return nil, nil, err
	}
	switch rv := parseResourceVersion(metadata.GetResourceVersion()); {
	case rv == 0:
		return nil, nil, fmt.Errorf("invalid resourceVersion %.40q", metadata.GetResourceVersion())
	case rv < reached && options.Continue == "":
		w.requestRelist()
		return nil, nil, fmt.Errorf("%w: it has reached resourceVersion %d, and the list is of %d", errInconsistent, reached, rv)
	}
	return page, metadata, nil
}

func (t *tracker[T]) reachedVersion() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reached.ResourceVersion
}

// recordDeletions records deletions in a map, by name, from now on; nil: it does not.
func (t *tracker[T]) recordDeletions(in map[string]uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleted = in
}

// findMismatches compares the tracked objects with a listing at resourceVersion rv, and returns the
// names that differ, among those of the previous comparison or, if that is nil, among all names. It returns
// nil if the watch has not received a list yet. An object that the watch has seen change after
// the listing does not count as different: a busy cluster never stands still to be compared.
func (t *tracker[T]) findMismatches(listed map[string]version, rv uint64, previous sets.Set[string]) sets.Set[string] {
	t.mu.Lock()
	defer t.mu.Unlock()
	if previous == nil && t.synced {
		previous = sets.KeySet(listed).Union(sets.KeySet(t.objects))
	}
	maps.DeleteFunc(previous, func(name string, _ sets.Empty) bool { return t.confirms(name, listed, rv) })
	return previous
}

func (t *tracker[T]) confirms(name string, listed map[string]version, rv uint64) bool {
	want, isListed := listed[name]
	have, isTracked := t.objects[name]
	switch {
	case isListed && isTracked:
		return have.version == want || have.rv > want.rv && have.rv > rv
	case isListed:
		return t.deleted[name] > rv // deleted since
	case isTracked:
		return have.rv > rv // created since
	}
	return true
}
