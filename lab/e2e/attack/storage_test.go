package attack

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// etcdQuota is what etcd holds by default, --quota-backend-bytes: then no client can write anything.
const etcdQuota = 2 << 30

// The figures of docs/design/policy.md: how fast a stolen credential fills etcd, by each way that there is, and how long an
// honest writer takes for 500 Services, both with and without the FlowSchema. It takes minutes, and some hundred MB of
// disk, so it runs on demand: SLICEFEED_LONG=1.
func TestAttackStorageIsMeasured(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{})
	s.Patience = 20 * time.Minute
	thief := s.ClientWith(s.WriterKubeconfig())
	// The control of the same moment: an account that no policy bounds.
	t.Logf(
		"control, slices of 1.25 MB updated without a policy: %s",
		fill(s, s.ConsumingClient(), updateOf(func(slice *discoveryv1.EndpointSlice) {
			slice.Annotations = map[string]string{"a": strings.Repeat("x", 250_000)}
			slice.Endpoints[0].TargetRef = &corev1.ObjectReference{FieldPath: strings.Repeat("x", 1_000_000)}
		})),
	)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := s.ConsumingClient().
			DiscoveryV1().
			EndpointSlices(pair.Namespace).
			DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	for _, bounded := range []bool{true, false} {
		if !bounded {
			withoutFlowSchema(s)
		}
		name := map[bool]string{true: "with the FlowSchema", false: "without it"}[bounded]
		t.Logf("%s: 500 Services, each slice made and changed: %s", name, honest(s, thief))
		for _, way := range []struct {
			name string
			do   filler
		}{
			{"slices updated", updateOf(largest)},
			{"slices created", func(ctx context.Context, as *kubernetes.Clientset, worker, n int) (int, error) {
				slice := changed(e2e.NewSlice(fmt.Sprintf("create-%d-%d", worker, n), "slicefeed-default", netip.MustParseAddr("10.0.1.66")), largest)
				made, err := as.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{})
				return made.Size(), err
			}},
			{"Events created", func(ctx context.Context, as *kubernetes.Clientset, worker, n int) (int, error) {
				event := eventOf(s.Service)
				event.Name = fmt.Sprintf("attack-%d-%d", worker, n)
				made, err := as.EventsV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
				return made.Size(), err
			}},
		} {
			t.Logf("%s, %s: %s", name, way.name, fill(s, thief, way.do))
			s.Must(
				s.ConsumingClient().
					DiscoveryV1().
					EndpointSlices(pair.Namespace).
					DeleteCollection(s.Ctx(), metav1.DeleteOptions{}, metav1.ListOptions{}),
			)
			s.Must(
				s.ConsumingClient().
					EventsV1().
					Events(pair.Namespace).
					DeleteCollection(s.Ctx(), metav1.DeleteOptions{}, metav1.ListOptions{}),
			)
		}
	}
}

// filler is one request of an attack on etcd's size; it returns how many bytes more etcd has to keep.
type filler func(ctx context.Context, as *kubernetes.Clientset, worker, n int) (int, error)

// updateOf changes one slice for each worker again and again: etcd keeps each version until it is compacted.
func updateOf(alter func(*discoveryv1.EndpointSlice)) filler {
	return func(ctx context.Context, as *kubernetes.Clientset, worker, n int) (int, error) {
		slice := changed(e2e.NewSlice(fmt.Sprintf("update-%d", worker), "slicefeed-default", netip.MustParseAddr("10.0.1.66")), alter)
		slice.Endpoints[0].Conditions.Ready = new(n%2 == 0)
		slices := as.DiscoveryV1().EndpointSlices(slice.Namespace)
		if n == 0 {
			made, err := slices.Create(ctx, slice, metav1.CreateOptions{})
			return made.Size(), err
		}
		made, err := slices.Update(ctx, slice, metav1.UpdateOptions{})
		return made.Size(), err
	}
}

// fill has 64 workers do what fills etcd for a while, and says what came of it.
func fill(s *e2e.Setup, as *kubernetes.Clientset, do filler) string {
	s.T.Helper()
	const span = 10 * time.Second
	ctx, cancel := context.WithTimeout(s.Ctx(), span)
	defer cancel()
	var done, refused, bytes atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for worker := range 64 {
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				switch size, err := do(ctx, as, worker, n); {
				case err == nil:
					done.Add(1)
					bytes.Add(int64(size))
				case ctx.Err() != nil:
				case apierrors.IsTooManyRequests(err):
					refused.Add(1)
				default:
					s.T.Errorf("worker %d, request %d: %v", worker, n, err)
					return
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	rate := float64(bytes.Load()) / took.Seconds()
	return fmt.Sprintf(
		"%.0f writes a second of %d bytes (%d refused), %.2f MB/s, the quota of 2 GiB in %s without compaction",
		float64(
			done.Load(),
		)/took.Seconds(),
		bytes.Load()/max(1, done.Load()),
		refused.Load(),
		rate/1e6,
		time.Duration(etcdQuota/rate*float64(time.Second)).Round(time.Second),
	)
}

// honest makes and changes the slices of 500 Services, all at once, as a writer does that fails over.
func honest(s *e2e.Setup, as *kubernetes.Clientset) string {
	s.T.Helper()
	var times []time.Duration
	for _, verb := range []string{"created", "updated"} {
		began := time.Now()
		var group sync.WaitGroup
		for i := range 500 {
			group.Go(func() {
				slice := e2e.NewSlice(
					fmt.Sprintf("honest-%d", i),
					"slicefeed-default",
					netip.MustParseAddr("10.0.1.66"),
					netip.MustParseAddr("10.0.1.67"),
				)
				var err error
				if verb == "created" {
					_, err = as.DiscoveryV1().EndpointSlices(slice.Namespace).Create(s.T.Context(), slice, metav1.CreateOptions{})
				} else {
					slice.Endpoints = slice.Endpoints[:1]
					_, err = as.DiscoveryV1().EndpointSlices(slice.Namespace).Update(s.T.Context(), slice, metav1.UpdateOptions{})
				}
				if err != nil {
					s.T.Errorf("slice %d %s: %v", i, verb, err)
				}
			})
		}
		group.Wait()
		times = append(times, time.Since(began).Round(time.Millisecond))
	}
	s.Must(
		s.ConsumingClient().
			DiscoveryV1().
			EndpointSlices(pair.Namespace).
			DeleteCollection(s.Ctx(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy + "=slicefeed-default"}),
	)
	return fmt.Sprintf("%s and %s", times[0], times[1])
}

// withoutFlowSchema takes it away for the rest of the test.
func withoutFlowSchema(s *e2e.Setup) {
	s.T.Helper()
	schemas := s.ConsumingClient().FlowcontrolV1().FlowSchemas()
	schema, err := schemas.Get(s.Ctx(), "slicefeed-writer", metav1.GetOptions{})
	s.Must(err)
	s.Must(schemas.Delete(s.Ctx(), schema.Name, metav1.DeleteOptions{}))
	s.T.Cleanup(func() {
		schema.ObjectMeta = metav1.ObjectMeta{Name: schema.Name, Labels: schema.Labels}
		if _, err := schemas.Create(context.WithoutCancel(s.T.Context()), schema, metav1.CreateOptions{}); err != nil {
			s.T.Error(err)
		}
	})
}
