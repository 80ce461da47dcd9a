package charts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/lab/pair"
)

func (t *tenant) service(ctx context.Context, name string) error {
	_, err := t.client.CoreV1().Services(t.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"slicefeed.dev/class": "default"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(pair.NodePort)}}},
	}, metav1.CreateOptions{})
	return err
}

// slices are those of a Service; none if they cannot be read.
func (t *tenant) slices(ctx context.Context, service string) []discoveryv1.EndpointSlice {
	list, err := t.client.DiscoveryV1().
		EndpointSlices(t.namespace).
		List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil
	}
	return list.Items
}

// serves reports whether a Service has a ready endpoint, in whatever slice.
func serves(service string) func(context.Context, *tenant) bool {
	return func(ctx context.Context, t *tenant) bool {
		return slices.ContainsFunc(t.slices(ctx, service), func(s discoveryv1.EndpointSlice) bool {
			return len(s.Endpoints) > 0 && s.Endpoints[0].Conditions.Ready != nil && *s.Endpoints[0].Conditions.Ready
		})
	}
}

func (t *tenant) annotate(ctx context.Context, service string, values map[string]any) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
	if err == nil {
		_, err = t.client.CoreV1().Services(t.namespace).Patch(ctx, service, types.MergePatchType, raw, metav1.PatchOptions{})
	}
	return err
}

// rename gives a Service's port another name, which its slices then have too.
func (t *tenant) rename(ctx context.Context, service, port string) error {
	patch := fmt.Sprintf(`[{"op": "replace", "path": "/spec/ports/0/name", "value": %q}]`, port)
	_, err := t.client.CoreV1().Services(t.namespace).Patch(ctx, service, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// named reports whether the Service's slices have a port of that name.
func (t *tenant) named(ctx context.Context, service, port string) bool {
	return slices.ContainsFunc(t.slices(ctx, service), func(s discoveryv1.EndpointSlice) bool {
		return len(s.Ports) == 1 && s.Ports[0].Name != nil && *s.Ports[0].Name == port
	})
}

// contest changes a slice all the time in a way that the writer does not mind, while it has to
// write: it cannot but meet a version that it has not seen.
func (t *tenant) contest(ctx context.Context) error {
	if err := t.service(ctx, "contested"); err != nil {
		return err
	}
	for n := 0; !serves("contested")(ctx, t); n++ {
		if n > 100 {
			return errors.New("Service contested has no endpoints")
		}
		t.pause(ctx)
	}
	name := t.slices(ctx, "contested")[0].Name
	over := make(chan struct{})
	var others sync.WaitGroup
	for n := range 3 {
		others.Go(func() {
			for i := 0; !closed(over) && ctx.Err() == nil; i++ {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.org/%d":"%d"}}}`, n, i)
				_, _ = t.client.DiscoveryV1().
					EndpointSlices(t.namespace).
					Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			}
		})
	}
	var err error
	for i := range 10 {
		err = errors.Join(err, t.rename(ctx, "contested", fmt.Sprint("p", i)))
	}
	t.pause(ctx)
	close(over)
	others.Wait()
	return errors.Join(err, t.rename(ctx, "contested", "last"))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// told is how often a warning was told on a Service; 0: there is none.
func (t *tenant) told(ctx context.Context, reason string) (events, times int32) {
	list, err := t.client.EventsV1().Events(t.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0
	}
	for _, e := range list.Items {
		if e.Reason == reason {
			events, times = events+1, times+1
			if e.Series != nil {
				times += e.Series.Count - 1
			}
		}
	}
	return events, times
}

const mistyped = "InvalidAnnotation"

// writerDeeds are all that a writer does with the API server.
var writerDeeds = []deed{
	podReady,
	{name: "it leads", done: func(ctx context.Context, t *tenant) bool {
		lease, err := t.client.CoordinationV1().Leases(t.namespace).Get(ctx, "slicefeed-default", metav1.GetOptions{})
		return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	}},
	{name: "it keeps its Lease", done: func(ctx context.Context, t *tenant) bool {
		lease, err := t.client.CoordinationV1().Leases(t.namespace).Get(ctx, "slicefeed-default", metav1.GetOptions{})
		return err == nil && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time)
	}},
	{name: "it lists the workers", done: serves("shop")},
	again(10, "it follows a Service", func(ctx context.Context, t *tenant) error {
		return t.rename(ctx, "shop", fmt.Sprint("p", t.round))
	}, func(ctx context.Context, t *tenant) bool { return t.named(ctx, "shop", fmt.Sprint("p", t.round)) }),
	again(4, "it repairs what somebody has done to its slice", func(ctx context.Context, t *tenant) error {
		for _, s := range t.slices(ctx, "shop") {
			s.Endpoints = nil
			_, err := t.client.DiscoveryV1().EndpointSlices(t.namespace).Update(ctx, &s, metav1.UpdateOptions{})
			if err != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
		return nil
	}, serves("shop")),
	{
		name: "it gets over a slice of another owner that has the name of its own", done: serves("taken"),
		do: func(ctx context.Context, t *tenant) error {
			foreign := &discoveryv1.EndpointSlice{
				ObjectMeta:  metav1.ObjectMeta{Name: "taken-slicefeed"},
				AddressType: discoveryv1.AddressTypeIPv4,
			}
			_, err := t.client.DiscoveryV1().EndpointSlices(t.namespace).Create(ctx, foreign, metav1.CreateOptions{})
			return errors.Join(err, t.service(ctx, "taken"))
		},
	},
	{
		name: "it gets over a write that met another one",
		done: func(ctx context.Context, t *tenant) bool { return t.named(ctx, "contested", "last") },
		do:   func(ctx context.Context, t *tenant) error { return t.contest(ctx) },
	},
	{
		name: "it tells what is wrong with a Service", done: func(ctx context.Context, t *tenant) bool {
			events, _ := t.told(ctx, mistyped)
			return events == 1
		},
		do: func(ctx context.Context, t *tenant) error {
			return t.annotate(ctx, "shop", map[string]any{"slicefeed.dev/probe": "ping"})
		},
	},
	{
		name: "it tells it again in the same Event", done: func(ctx context.Context, t *tenant) bool {
			events, times := t.told(ctx, mistyped)
			return events == 1 && times == 2
		},
		do: func(ctx context.Context, t *tenant) error {
			// Mended and broken in between, each long enough to be seen: with a Service that is
			// changed twice at once the writer sees the last of it.
			if err := t.annotate(
				ctx,
				"shop",
				map[string]any{"slicefeed.dev/probe": nil, "slicefeed.dev/shrink-window": "45s"},
			); err != nil {
				return err
			}
			t.pause(ctx)
			return t.annotate(ctx, "shop", map[string]any{"slicefeed.dev/probe": "ping"})
		},
	},
	{
		name: "a Service that opts out loses its slices",
		done: func(ctx context.Context, t *tenant) bool { return len(t.slices(ctx, "shop")) == 0 },
		do: func(ctx context.Context, t *tenant) error {
			_, err := t.client.CoreV1().
				Services(t.namespace).
				Patch(ctx, "shop", types.MergePatchType, []byte(`{"metadata":{"labels":{"slicefeed.dev/class":"none"}}}`), metav1.PatchOptions{})
			return err
		},
	},
}

func TestTheWriterNeedsEachOfItsPermissions(t *testing.T) {
	s := enter(t)
	s.inventoryUp()
	w := s.worker()
	s.must(w.Join(s.ctx()))
	const (
		namespaced = "Role"
		lease      = "Role-lease"
		endpoints  = "endpointslices.discovery.k8s.io"
		events     = "events.events.k8s.io"
		leases     = "leases.coordination.k8s.io"
	)
	tr := &trial{
		name: "writer", chart: Writer, side: Consuming, deeds: writerDeeds,
		prepare: func(ctx context.Context, _ *stage, t *tenant) error { return t.service(ctx, "shop") },
		needs: map[permission]string{
			{namespaced, "services", "list"}:  "its Pod becomes ready",
			{namespaced, "services", "watch"}: "it follows a Service",
			{namespaced, endpoints, "list"}:   "its Pod becomes ready",
			{namespaced, endpoints, "watch"}:  "it repairs what somebody has done to its slice",
			{namespaced, endpoints, "get"}:    "it gets over a slice of another owner that has the name of its own",
			{namespaced, endpoints, "create"}: "it lists the workers",
			{namespaced, endpoints, "update"}: "it follows a Service",
			{namespaced, endpoints, "delete"}: "a Service that opts out loses its slices",
			{namespaced, events, "create"}:    "it tells what is wrong with a Service",
			{namespaced, events, "patch"}:     "it tells it again in the same Event",
			{lease, leases, "create"}:         "it leads",
			{lease, leases, "get"}:            "it leads",
			{lease, leases, "update"}:         "it keeps its Lease",
		},
	}
	defer tr.remove(s)
	tr.run(s)
}
