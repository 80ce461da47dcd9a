package kubenodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

const (
	requestTimeout = 5 * time.Second  // of one request of a look
	lookTimeout    = 10 * time.Second // of a full look
	recheck        = 20 * time.Millisecond
	pageSize       = 500
)

// Look asks the API server whether the watch can be believed. Light returns the
// resourceVersion of a quorum LIST with limit=1. Full reads all Nodes in pages by quorum
// and returns nil once what the watch has told equals them; if that does not come about
// within 10 s, it is an error and the Nodes are read anew.
// Take after it returned, and before its answer goes to Roster.Looked, holds everything it compared with.
func (n *Nodes) Look(ctx context.Context, look roster.Look) (resourceVersion uint64, err error) {
	switch look {
	case roster.Light:
		resourceVersion, err = n.light(ctx)
	case roster.Full:
		resourceVersion, err = n.full(ctx)
	default:
		return 0, fmt.Errorf("look at nodes: no such look: %d", look)
	}
	result := "ok"
	if err != nil {
		result = "failed"
		if errors.Is(err, errDisagrees) {
			result = "disagreed"
		}
	}
	n.looks.WithLabelValues(look.String(), result).Inc()
	return resourceVersion, err
}

// errDisagrees: the API server answered, and the watch does not come to say the same.
var errDisagrees = errors.New("the watch disagrees with the API server")

func (n *Nodes) light(ctx context.Context) (uint64, error) {
	list, err := n.list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list one node: %w", err)
	}
	rv := number(list.ResourceVersion)
	if rv == 0 {
		return 0, fmt.Errorf("list one node: %.40q is no resourceVersion", list.ResourceVersion)
	}
	return rv, nil
}

func (n *Nodes) full(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	n.tracker.startLook()
	defer n.tracker.endLook()
	listed, rv, err := n.listAll(ctx)
	if err != nil {
		return 0, fmt.Errorf("list all nodes: %w", err)
	}
	var open map[string]struct{} // nil: nothing compared yet
	for {
		if open = n.tracker.differing(listed, rv, open); len(open) == 0 && open != nil {
			return rv, nil
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return 0, ctx.Err()
			}
			if open == nil {
				return 0, fmt.Errorf("compare nodes: %w: it has told nothing yet", errDisagrees)
			}
			n.readAnew()
			return 0, fmt.Errorf("compare nodes: %w about %d nodes, among them %.80q", errDisagrees, len(open), slices.Min(slices.Collect(maps.Keys(open))))
		case <-time.After(recheck):
		}
	}
}

// version is what tells a Node from itself at another time.
type version struct {
	uid string
	rv  uint64
}

// listAll reads all Nodes page by page. The first page names no resourceVersion, which makes
// it a quorum read, and the others continue its snapshot.
func (n *Nodes) listAll(ctx context.Context) (map[string]version, uint64, error) {
	listed := map[string]version{}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := n.list(ctx, options)
		if apierrors.IsResourceExpired(err) && options.Continue != "" {
			clear(listed) // the snapshot is gone: from the start, while there is time
			options.Continue = ""
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		for i := range page.Items {
			item := &page.Items[i]
			if item.Name != "" {
				listed[item.Name] = version{string(item.UID), number(item.ResourceVersion)}
			}
		}
		if page.Continue == "" {
			return listed, number(page.ResourceVersion), nil
		}
		options.Continue = page.Continue
	}
}

func (n *Nodes) list(ctx context.Context, options metav1.ListOptions) (*corev1.NodeList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return n.client.CoreV1().Nodes().List(ctx, options)
}

func (t *tracker) startLook() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookers++
}

func (t *tracker) endLook() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lookers--; t.lookers == 0 {
		clear(t.gone)
	}
}

// differing returns the names about which the tracker does not bear out a listing of this
// resourceVersion: of all, or of those still open; nil when nothing was told yet. What the
// tracker knows to be newer than the listing bears it out: a busy cluster never stands still to be compared.
func (t *tracker) differing(listed map[string]version, rv uint64, open map[string]struct{}) map[string]struct{} {
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

func (t *tracker) bearsOut(name string, listed map[string]version, rv uint64) bool {
	want, isListed := listed[name]
	have, isKnown := t.known[name]
	switch {
	case isListed && isKnown:
		return have.rv == want.rv && have.candidate.UID == want.uid || have.rv > want.rv && have.rv > rv
	case isListed:
		return t.gone[name] > rv // deleted since
	case isKnown:
		return have.rv > rv // created since
	}
	return true
}
