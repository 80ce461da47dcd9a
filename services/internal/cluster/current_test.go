package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// requestLog is a client that records what is requested.
type requestLog struct {
	versions []string // resourceVersion of each request
	opened   *watch.FakeWatcher
	err      error // of watches
	timeout  int64 // of the last one, in seconds
}

func (l *requestLog) List(_ context.Context, options metav1.ListOptions) (*corev1.NodeList, error) {
	l.versions = append(l.versions, options.ResourceVersion)
	return &corev1.NodeList{}, nil
}

func (l *requestLog) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	l.versions, l.timeout = append(l.versions, options.ResourceVersion), *options.TimeoutSeconds
	if l.err != nil {
		return nil, l.err
	}
	l.opened = watch.NewFake()
	return l.opened, nil
}

func TestListsAreQuorumReads(t *testing.T) {
	log := &requestLog{}
	requests := cache.ToListerWatcherWithContext(KeepCurrent(NewRequests(log, "", ""), log))
	for _, version := range []string{"0", "7", ""} {
		options := metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
		if _, err := requests.ListWithContext(t.Context(), options); err != nil {
			t.Fatal(err)
		}
		options.SendInitialEvents = new(true)
		if _, err := requests.WatchWithContext(t.Context(), options); err != nil {
			t.Fatal(err)
		}
	}
	if slices.ContainsFunc(log.versions, func(v string) bool { return v != "" }) || len(log.versions) != 6 {
		t.Errorf("requested resourceVersions %q, want none", log.versions)
	}
}

func TestAWatchNeverContinuesAnotherOne(t *testing.T) {
	initial := metav1.ListOptions{SendInitialEvents: new(true), TimeoutSeconds: new(int64(300))}
	resume := metav1.ListOptions{ResourceVersion: "7", TimeoutSeconds: new(int64(300))}
	refused := errors.New("connection refused")
	for name, first := range map[string]func(context.Context, cache.ListerWatcherWithContext) error{
		"a list": func(ctx context.Context, requests cache.ListerWatcherWithContext) error {
			_, errList := requests.ListWithContext(ctx, metav1.ListOptions{})
			_, errWatch := requests.WatchWithContext(ctx, resume)
			return errors.Join(errList, errWatch)
		},
		"a watch that begins with a list": func(ctx context.Context, requests cache.ListerWatcherWithContext) error {
			_, err := requests.WatchWithContext(ctx, initial)
			return err
		},
	} {
		for _, attempt := range []error{nil, refused} {
			t.Run(fmt.Sprintf("%s, and then %v", name, attempt), func(t *testing.T) {
				log := &requestLog{err: attempt}
				requests := cache.ToListerWatcherWithContext(KeepCurrent(NewRequests(log, "", ""), log))
				if err := first(t.Context(), requests); !errors.Is(err, attempt) {
					t.Fatalf("got %v, want %v", err, attempt)
				}
				log.err = nil
				if _, err := requests.WatchWithContext(t.Context(), resume); !apierrors.IsResourceExpired(err) || !log.opened.IsStopped() {
					t.Errorf("got %v, want that it has expired; still open: %t", err, !log.opened.IsStopped())
				}
				if err := first(t.Context(), requests); err != nil || log.timeout != 1200 {
					t.Errorf("after another list: %v, for %d s", err, log.timeout)
				}
			})
		}
	}
}

// TestAReflectorListsAgainWhatAnInterruptedWatchMissed has a reflector of client-go, of an API server that was restored.
func TestAReflectorListsAgainWhatAnInterruptedWatchMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := make(chan *watch.FakeWatcher, 10)
		listOf := func(version, name string) *corev1.NodeList {
			return &corev1.NodeList{
				ListMeta: metav1.ListMeta{ResourceVersion: version},
				Items:    []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: name}}},
			}
		}
		var listed atomic.Pointer[corev1.NodeList]
		listed.Store(listOf("1000", "lost"))
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		reflector := cache.NewReflector(KeepCurrent(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return listed.Load(), nil },
			WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
				if options.SendInitialEvents != nil { // as an older API server
					return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "", nil)
				}
				stream := watch.NewFake()
				streams <- stream
				return stream, nil
			},
		}, nil), &corev1.Node{}, store, 0)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			reflector.RunWithContext(ctx)
		}()
		stream := <-streams
		listed.Store(listOf("500", "restored"))
		stream.Stop()
		time.Sleep(time.Minute)
		if names := store.ListKeys(); !slices.Equal(names, []string{"restored"}) || reflector.LastSyncResourceVersion() != "500" {
			t.Errorf("has %v at %s, want what was restored", names, reflector.LastSyncResourceVersion())
		}
		stop()
		<-done
	})
}

// silentServer sends its parts with pauses, and then nothing.
type silentServer struct {
	header time.Duration
	parts  []time.Duration
}

func (s silentServer) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.header):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	reader, writer := io.Pipe()
	go func() {
		for _, pause := range s.parts {
			time.Sleep(pause)
			_, _ = writer.Write([]byte("x"))
		}
		<-r.Context().Done()
		writer.CloseWithError(r.Context().Err())
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: reader, Request: r}, nil
}

func TestASilentRequestIsCanceled(t *testing.T) {
	for name, tc := range map[string]struct {
		server silentServer
		after  time.Duration
		read   string
	}{
		"no response":       {silentServer{header: time.Hour}, maxSilence, ""},
		"nothing follows":   {silentServer{header: time.Minute}, maxSilence, ""},
		"something follows": {silentServer{parts: []time.Duration{2 * time.Minute, 2 * time.Minute}}, 4*time.Minute + maxSilence, "xx"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := &rest.Config{Transport: tc.server}
				Observe(config, "component", prometheus.NewRegistry())
				transport, err := rest.TransportFor(config)
				if err != nil {
					t.Fatal(err)
				}
				startedAt := time.Now()
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api/api/v1/nodes?watch=true", nil)
				if err != nil {
					t.Fatal(err)
				}
				var read strings.Builder
				resp, err := transport.RoundTrip(request)
				if err == nil {
					_, err = io.Copy(&read, resp.Body)
					resp.Body.Close()
				}
				if took := time.Since(startedAt); !errors.Is(err, context.Canceled) || took != tc.after || read.String() != tc.read {
					t.Errorf("read %q, and after %s: %v; want %q and %s", &read, took, err, tc.read, tc.after)
				}
			})
		})
	}
}
