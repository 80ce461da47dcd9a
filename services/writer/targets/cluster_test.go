package targets

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testCluster runs a Watcher on a fake cluster.
type testCluster struct {
	*Watcher

	t              *testing.T
	client         *fake.Clientset
	taken          []Key
	watching       chan struct{} // a signal for each watch that has begun
	missingWatches int           // how many have not, as far as we know
}

func startWatcher(t *testing.T, cfg Config, client *fake.Clientset) *testCluster {
	t.Helper()
	return startWatcherOfImports(t, cfg, client, nil)
}

func startWatcherOfImports(t *testing.T, cfg Config, client *fake.Clientset, imports dynamic.Interface) *testCluster {
	t.Helper()
	watcher, err := New(client, imports, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return startCluster(t, watcher, client)
}

func startCluster(t *testing.T, watcher *Watcher, client *fake.Clientset) *testCluster {
	t.Helper()
	r := &testCluster{
		Watcher:        watcher,
		t:              t,
		client:         client,
		missingWatches: 2 * len(watcher.informers),
		watching:       make(chan struct{}, 100),
	}
	client.PrependWatchReactor("*", func(a k8stesting.Action) (bool, watch.Interface, error) {
		stream, err := client.Tracker().Watch(a.GetResource(), a.GetNamespace())
		r.watching <- struct{}{}
		return true, stream, err
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- watcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// Get resolves a Service as a standby does.
func (r *testCluster) Get(key Key) Resolution { return r.Watcher.Get(key, time.Time{}) }

// waitForWatches waits until everything is watched: the fake loses changes between list and watch.
func (r *testCluster) waitForWatches() {
	r.t.Helper()
	for ; r.missingWatches > 0; r.missingWatches-- {
		select {
		case <-r.watching:
		case <-time.After(20 * time.Second):
			r.t.Fatalf("%d watches have not begun", r.missingWatches)
		}
	}
}

// waitFor reads changes until the Service is reported and ok accepts its resolution.
func (r *testCluster) waitFor(key Key, what string, ok func(Resolution) bool) Resolution {
	r.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case <-r.Changed():
			taken := r.TakeChanged()
			r.taken = append(r.taken, taken...)
			if !slices.Contains(taken, key) {
				continue
			}
			if resolution := r.Get(key); ok(resolution) {
				return resolution
			}
		case <-limit:
			r.t.Fatalf("not reported: %s; now %+v", what, r.Get(key))
		}
	}
}

// takeAll reads changes until n Services were reported, and returns them sorted.
func (r *testCluster) takeAll(n int) []Key {
	r.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		slices.SortFunc(r.taken, Key.Compare)
		r.taken = slices.Compact(r.taken)
		if len(r.taken) >= n {
			return r.taken
		}
		select {
		case <-r.Changed():
			r.taken = append(r.taken, r.TakeChanged()...)
		case <-limit:
			r.t.Fatalf("%d reported, want %d", len(r.taken), n)
		}
	}
}

func (r *testCluster) applyService(svc *corev1.Service) {
	r.t.Helper()
	r.waitForWatches()
	services := r.client.CoreV1().Services(svc.Namespace)
	if _, err := services.Update(r.t.Context(), svc, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := services.Create(r.t.Context(), svc, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *testCluster) applySlice(s *discoveryv1.EndpointSlice) {
	r.t.Helper()
	r.waitForWatches()
	all := r.client.DiscoveryV1().EndpointSlices(s.Namespace)
	if _, err := all.Update(r.t.Context(), s, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := all.Create(r.t.Context(), s, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *testCluster) deleteService(key Key) {
	r.t.Helper()
	r.waitForWatches()
	if err := r.client.CoreV1().Services(key.Namespace).Delete(r.t.Context(), key.Name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *testCluster) deleteSlice(namespace, name string) {
	r.t.Helper()
	r.waitForWatches()
	if err := r.client.DiscoveryV1().EndpointSlices(namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
}
