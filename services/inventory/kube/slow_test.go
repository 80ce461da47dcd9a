package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// slowServer lists nodes page by page, with a delay per page.
type slowServer struct {
	nodes   []*corev1.Node
	perPage time.Duration
	pages   int
	endless bool // every page has a continue token
	lists   int
}

func (s *slowServer) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	select {
	case <-time.After(s.perPage):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.lists++
	page := 0
	if o.Continue != "" {
		_, _ = fmt.Sscan(o.Continue, &page)
	}
	list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}
	for i, n := range s.nodes {
		if i%s.pages == page%s.pages {
			list.Items = append(list.Items, *n)
		}
	}
	if s.endless || page+1 < s.pages {
		list.Continue = fmt.Sprint(page + 1)
	}
	return list, nil
}

func newNodes(n int) []*corev1.Node {
	all := make([]*corev1.Node, n)
	for i := range all {
		all[i] = newNode(fmt.Sprintf("n-%03d", i))
	}
	return all
}

// newSlowWatch returns a watch of the server whose own list arrives after a delay; 0: immediately,
// below 0: never.
func newSlowWatch(s *slowServer, arrives time.Duration) *Watch[bool] {
	k := cordonKind(nil)
	k.Requests = &cache.ListWatch{ListWithContextFunc: s.list}
	w := NewWatch(
		k,
		WatchConfig{Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()), Changed: make(chan struct{}, 1)},
	)
	listed := make([]any, len(s.nodes))
	for i, n := range s.nodes {
		listed[i] = n
	}
	switch {
	case arrives == 0:
		_ = w.tracker.Replace(listed, "10")
	case arrives > 0:
		time.AfterFunc(arrives, func() { _ = w.tracker.Replace(listed, "10") })
	}
	return w
}

func TestFullVerificationWaitsForAllPages(t *testing.T) {
	for _, tc := range []struct {
		name    string
		server  slowServer
		arrives time.Duration // the watch's own list
		took    time.Duration
		wantErr string // substring; empty: success
	}{
		{"one quick page", slowServer{pages: 1}, 0, 0, ""},
		{"ten slow pages", slowServer{pages: 10, perPage: 1200 * time.Millisecond}, 0, 12 * time.Second, ""},
		{"fifty slow pages", slowServer{pages: 50, perPage: 1200 * time.Millisecond}, 0, time.Minute, ""},
		{"the watch is as slow as the listing", slowServer{pages: 50, perPage: 1200 * time.Millisecond}, 110 * time.Second, 110 * time.Second, ""},
		{"the watch needs a moment", slowServer{pages: 1}, 9 * time.Second, 9 * time.Second, ""},
		{"the watch receives nothing", slowServer{pages: 1}, -1, 10 * time.Second, "has not received a list yet"},
		{"the watch receives nothing while pages are slow", slowServer{pages: 10, perPage: 1500 * time.Millisecond}, -1, 30 * time.Second, "has not received a list yet"},
		{"the first page hangs", slowServer{pages: 2, perPage: time.Hour}, 0, 10 * time.Second, "list all nodes: context deadline exceeded"},
		{"pages without end", slowServer{pages: 1, perPage: 1300 * time.Millisecond, endless: true}, 0, 2 * time.Minute, "after 100 objects"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.server.nodes = newNodes(100)
				w := newSlowWatch(&tc.server, tc.arrives)
				startedAt := time.Now()
				_, err := NewVerifier(w).Verify(t.Context(), roster.FullVerification)
				took := time.Since(startedAt)
				if off := took - tc.took; off < 0 || off > 2*recheckInterval {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
					t.Errorf("got %v, want %q", err, tc.wantErr)
				}
			})
		})
	}
}

func TestCanceledFullVerificationDoesNotRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{pages: 1, nodes: newNodes(3)}
		w := newSlowWatch(server, 0)
		_ = w.tracker.Delete(newNode("n-001", setResourceVersion("5"))) // makes the watch inconsistent
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		relists := 0
		relist := context.CancelFunc(func() { relists++ })
		w.relist.Store(&relist)
		_, err := NewVerifier(w).Verify(ctx, roster.FullVerification)
		if !errors.Is(err, context.DeadlineExceeded) || relists != 0 {
			t.Errorf("got %v, %d relists", err, relists)
		}
	})
}
