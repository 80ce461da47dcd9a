package targets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

func isServed(v Resolution) bool {
	return v.State == Managed
}

func TestFollowsNamedTarget(t *testing.T) {
	r := startWatcher(t, configWithNamedTarget(), fake.NewClientset(newSlice("by-hand", "hand")))
	unlabeled := newService()
	unlabeled.Labels = nil
	resolution := r.waitFor(shop, "no Service", func(v Resolution) bool { return v.Rejection != nil })
	if resolution.Rejection.Reason != "ServiceNotFound" || resolution.Owner.UID != "" {
		t.Errorf("rejected: %v", resolution.Rejection)
	}
	r.applyService(unlabeled)
	resolution = r.waitFor(shop, "the Service", isServed)
	if resolution.Owner.UID != "svc-1" {
		t.Errorf("UID is %s", resolution.Owner.UID)
	}
	if len(resolution.Slices) != 1 || len(resolution.Slices[0].Endpoints) != 1 || resolution.Slices[0].Endpoints[0].TargetRef != nil {
		t.Errorf("a foreign slice should come with what is published of its endpoints: %+v", resolution.Slices)
	}
	selecting := unlabeled.DeepCopy()
	selecting.Spec.Selector = map[string]string{"app": "shop"}
	r.applyService(selecting)
	r.waitFor(shop, "the selector", func(v Resolution) bool {
		return v.Rejection != nil && v.Rejection.Reason == "ServiceHasSelector" && v.Owner.UID == "svc-1"
	})
	r.deleteService(shop)
	r.waitFor(
		shop,
		"the Service's end",
		func(v Resolution) bool { return v.Rejection != nil && v.Rejection.Reason == "ServiceNotFound" },
	)
	again := unlabeled.DeepCopy()
	again.UID = "svc-2"
	r.applyService(again)
	r.waitFor(shop, "the Service created again", func(v Resolution) bool { return isServed(v) && v.Owner.UID == "svc-2" })
	r.applySlice(newSlice("shop-nodes", "slicefeed-default"))
	resolution = r.waitFor(
		shop,
		"our slice, whole",
		func(v Resolution) bool { return len(v.Slices) == 2 && len(v.Slices[1].Endpoints) == 1 },
	)
	if diff := cmp.Diff([]string{"by-hand", "shop-nodes"}, sliceNames(resolution.Slices)); diff != "" {
		t.Error(diff)
	}
}

func TestFollowsLabeledServiceUntilOptOut(t *testing.T) {
	plain := newService()
	plain.Labels = nil
	r := startWatcher(t, newConfig(), fake.NewClientset(plain))
	if resolution := r.Get(shop); resolution.State > Gone {
		t.Error("relevant without a label")
	}
	r.applyService(newService())
	r.waitFor(shop, "the label", isServed)
	r.applySlice(ownedSlice("shop-slicefeed", "svc-1"))
	r.waitFor(shop, "our slice", func(v Resolution) bool { return isServed(v) && len(v.Slices) == 1 })
	r.applyService(plain)
	r.waitFor(shop, "the label's removal", func(v Resolution) bool { return isServed(v) && v.Warning != nil })
	without := plain.DeepCopy()
	without.Labels = map[string]string{LabelClass: "none"}
	r.applyService(without)
	r.waitFor(
		shop,
		"the opting out",
		func(v Resolution) bool { return v.State == Leaving && len(v.Slices) == 1 && !v.Settings.Paused },
	)
	paused := without.DeepCopy()
	paused.Annotations["slicefeed.dev/paused"] = "true"
	r.applyService(paused)
	r.waitFor(shop, "the pause", func(v Resolution) bool { return v.State == Leaving && v.Settings.Paused })
	r.deleteSlice("web", "shop-slicefeed")
	r.waitFor(shop, "the end", func(v Resolution) bool { return v.State == Gone })
	if len(r.memories) != 0 {
		t.Errorf("memory of an irrelevant Service: %v", r.memories)
	}
}

func TestDeletedServiceIsIrrelevant(t *testing.T) {
	r := startWatcher(t, newConfig(), fake.NewClientset(newService(), ownedSlice("shop-slicefeed", "svc-1")))
	r.waitFor(shop, "the Service", isServed)
	r.deleteService(shop)
	r.waitFor(shop, "its end", func(v Resolution) bool { return v.State == Gone })
}

func TestRecreatedServiceHasNoMemory(t *testing.T) {
	first := newService()
	r := startWatcher(t, newConfig(), fake.NewClientset(first, ownedSlice("shop-slicefeed", "svc-1")))
	r.waitFor(shop, "the Service", isServed)
	invalid := newService()
	invalid.Annotations["slicefeed.dev/probe"] = "ping"
	r.applyService(invalid)
	r.waitFor(shop, "the annotation error", func(v Resolution) bool { return isServed(v) && v.Warning != nil })
	// Deleted and recreated between two reads.
	again := invalid.DeepCopy()
	again.UID = "svc-2"
	r.applyService(again)
	resolution := r.waitFor(shop, "the new one", func(v Resolution) bool { return v.Owner.UID == "svc-2" })
	if resolution.Rejection == nil || resolution.Rejection.Reason != "InvalidAnnotation" {
		t.Errorf("the settings of the one before are not its own: %v", resolution.Rejection)
	}
	again.Annotations = nil
	r.applyService(again)
	resolution = r.waitFor(shop, "the repaired one", isServed)
	if desired := resolution.Desired(); len(resolution.Slices) != 1 || !desired.Owns(resolution.Slices[0]) ||
		desired.Owner.UID != "svc-2" {
		t.Errorf("the old slice is not owned: %+v", resolution.Slices)
	}
}

func TestRelabeledSliceStillAffectsOwner(t *testing.T) {
	r := startWatcher(t, newConfig(), fake.NewClientset(newService(), ownedSlice("renamed", "svc-1")))
	r.waitFor(shop, "the slice", func(v Resolution) bool { return isServed(v) && len(v.Slices) == 1 })
	altered := ownedSlice("renamed", "svc-1")
	altered.Labels["kubernetes.io/service-name"] = "cart"
	altered.ResourceVersion = "7"
	r.applySlice(altered)
	r.waitFor(shop, "the alteration", func(v Resolution) bool {
		return len(v.Slices) == 1 && v.Slices[0].Labels["kubernetes.io/service-name"] == "cart" && v.Desired().Owns(v.Slices[0])
	})
}

func TestWatchesConfiguredNamespaces(t *testing.T) {
	in := func(namespace string) *corev1.Service {
		svc := newService()
		svc.Namespace = namespace
		return svc
	}
	for name, tc := range map[string]struct {
		namespaces []string
		want       []string
	}{
		"some": {[]string{"a", "b"}, []string{"a", "b"}},
		"all":  {[]string{"*"}, []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newConfig()
			cfg.Namespaces = tc.namespaces
			r := startWatcher(t, cfg, fake.NewClientset(in("a"), in("b"), in("c")))
			var got []string
			for _, key := range r.takeAll(len(tc.want)) {
				got = append(got, key.Namespace)
			}
			if err := r.Synced(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, none := range [][]string{nil, {""}, {"a", ""}} {
		if _, err := New(fake.NewClientset(), nil, Config{Namespaces: none}, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%q: no namespace at all makes no sense", none)
		}
	}
}

func TestUnreadableNamespaceDelaysNoOther(t *testing.T) {
	client := fake.NewClientset(newService())
	client.PrependReactor("list", "endpointslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		return action.GetNamespace() == "secret", nil, errors.New("endpointslices is forbidden")
	})
	cfg := newConfig()
	cfg.Namespaces = []string{"web", "secret"}
	cfg.NamedTarget = Target{Key: Key{Namespace: "secret", Name: "shop"}}
	r := startWatcher(t, cfg, client)
	r.waitFor(shop, "the Service of the other namespace", isServed)
	if resolution := r.Get(Key{Namespace: "secret", Name: "shop"}); resolution.State != Unknown {
		t.Errorf("%+v", resolution)
	}
	if slices.ContainsFunc(r.taken, func(k Key) bool { return k.Namespace == "secret" }) {
		t.Errorf("reported though unreadable: %v", r.taken)
	}
	err := r.Synced()
	// The reason is known after the first failed list, which may come after the other namespace has
	// synced.
	for limit := time.After(20 * time.Second); err != nil && !strings.Contains(err.Error(), "failed to list"); err = r.Synced() {
		select {
		case <-limit:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	if err == nil || strings.Contains(err.Error(), "web") ||
		!strings.Contains(err.Error(), "namespace secret (failed to list *v1.EndpointSlice: endpointslices is forbidden)") {
		t.Errorf("%v", err)
	}
}

func TestCollectsClusterIPsOfWatchedServices(t *testing.T) {
	other := namedService("cart", "svc-2")
	other.Labels = nil
	other.Spec.ClusterIP, other.Spec.ClusterIPs = "10.96.0.10", []string{"10.96.0.10", "fd00::10"}
	r := startWatcher(t, newConfig(), fake.NewClientset(newService(), other))
	before := r.waitFor(shop, "the Service", isServed).ClusterIPs
	want := map[netip.Addr]struct{}{}
	for _, a := range []string{"10.96.0.9", "10.96.0.10", "fd00::10"} {
		want[netip.MustParseAddr(a)] = struct{}{}
	}
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, before, same); diff != "" {
		t.Error(diff)
	}
	r.deleteService(Key{Namespace: "web", Name: "cart"})
	mine := newService()
	mine.Annotations["slicefeed.dev/list-unready"] = "false"
	r.applyService(mine)
	after := r.waitFor(shop, "a change after that", func(v Resolution) bool { return !v.Settings.ListUnready }).ClusterIPs
	if len(after) != 1 || len(before) != 3 {
		t.Errorf("now %v; what was given before must not change: %v", after, before)
	}
}

// countingIndexer counts the objects that it returns.
type countingIndexer struct {
	cache.Indexer

	t        *testing.T
	returned int
}

func (c *countingIndexer) ByIndex(index, value string) ([]any, error) {
	found, err := c.Indexer.ByIndex(index, value)
	c.returned += len(found)
	return found, err
}

func (c *countingIndexer) List() []any {
	c.t.Error("the whole namespace was listed")
	return c.Indexer.List()
}

// countingInformer returns a countingIndexer.
type countingInformer struct {
	cache.SharedIndexInformer

	counting *countingIndexer
}

func (i countingInformer) GetIndexer() cache.Indexer { return i.counting }

func TestGetReadsOneServiceOnly(t *testing.T) {
	const many = 500
	var objects []runtime.Object
	for i := range many {
		name := fmt.Sprintf("svc-%03d", i)
		uid := types.UID("uid-" + name)
		mine, pods := ownedSlice(name+"-slicefeed", uid), newSlice(name+"-pods", "endpointslice-controller.k8s.io")
		mine.Labels["kubernetes.io/service-name"], pods.Labels["kubernetes.io/service-name"] = name, name
		objects = append(objects, namedService(name, uid), mine, pods)
	}
	cfg, client := newConfig(), fake.NewClientset(objects...)
	watcher, err := New(client, nil, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a := watcher.informers["web"]
	c := &countingIndexer{Indexer: a.slices.GetIndexer(), t: t}
	a.slices.SharedIndexInformer = countingInformer{a.slices.SharedIndexInformer, c}
	r := startCluster(t, watcher, client)
	r.takeAll(many)
	r.taken, c.returned = nil, 0
	key := Key{Namespace: "web", Name: "svc-123"}
	changed := ownedSlice("svc-123-slicefeed", "uid-svc-123")
	changed.Labels["kubernetes.io/service-name"] = "svc-123"
	changed.Endpoints[0].Addresses[0] = "10.0.0.2"
	r.applySlice(changed)
	resolution := r.waitFor(key, "the change", isServed)
	if diff := cmp.Diff([]Key{key}, r.taken); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"svc-123-pods", "svc-123-slicefeed"}, sliceNames(resolution.Slices)); diff != "" {
		t.Error(diff)
	}
	// Two slices by name and one by owner.
	if c.returned != 3 {
		t.Errorf("%d slices were read", c.returned)
	}

	r.taken = nil
	another := namedService("svc-321", "uid-svc-321")
	another.Annotations["slicefeed.dev/list-unready"] = "false"
	r.applyService(another)
	r.waitFor(keyOf(another), "the change of a Service", func(v Resolution) bool { return !v.Settings.ListUnready })
	if diff := cmp.Diff([]Key{keyOf(another)}, r.taken); diff != "" {
		t.Error(diff)
	}
}

// As after a restore of etcd: a watch that continued would miss what changed, and perhaps all that comes.
func TestEverythingIsListedAgainAfterAnInterruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := newImportObject()
		object.SetAPIVersion("multicluster.x-k8s.io/v1beta1")
		imports, _ := newImports("v1beta1", object)
		client := fake.NewClientset(newService(), ownedSlice("shop-slicefeed", "svc-1"))
		streams := make(chan *watch.FakeWatcher, 100)
		deaf := func(k8stesting.Action) (bool, watch.Interface, error) {
			stream := watch.NewFake()
			streams <- stream
			return true, stream, nil
		}
		client.PrependWatchReactor("*", deaf)
		imports.PrependWatchReactor("*", deaf)
		watcher, err := New(client, imports, configWithImports(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- watcher.Run(ctx) }()
		time.Sleep(time.Second)
		get := func(key Key) Resolution { return watcher.Get(key, time.Time{}) }
		if got := get(shop); !isServed(got) || len(got.Slices) != 1 || !isServed(get(shopImport)) || len(streams) != 3 {
			t.Fatalf("%d watches, %+v", len(streams), got)
		}
		for resource, name := range map[schema.GroupVersionResource]string{
			corev1.SchemeGroupVersion.WithResource("services"): "shop", discoveryv1.SchemeGroupVersion.WithResource("endpointslices"): "shop-slicefeed",
		} {
			if err := client.Tracker().Delete(resource, "web", name); err != nil {
				t.Fatal(err)
			}
		}
		if err := imports.Tracker().Delete(importsOf("v1beta1"), "web", "shop"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			(<-streams).Stop()
		}
		time.Sleep(time.Minute)
		if got := get(shop); isServed(got) || len(got.Slices) != 0 || isServed(get(shopImport)) {
			t.Errorf("what is gone is still there: %+v", got)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRelistWithoutChangesIsIgnored(t *testing.T) {
	a, b, c := newService(), newService(), newService()
	a.ResourceVersion, b.ResourceVersion, c.ResourceVersion = "5", "5", "6"
	if !equalVersions(a, b) || equalVersions(a, c) {
		t.Error("only the resource version shows a change")
	}
}

func TestRemovedLabelKeepsServiceManageable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofBlue, ready, notReady := newSlice("of-blue", "slicefeed-blue"), true, false
		ofBlue.Endpoints = []discoveryv1.Endpoint{
			{
				Conditions: discoveryv1.EndpointConditions{Ready: &notReady},
			},
			{Conditions: discoveryv1.EndpointConditions{Ready: &ready}},
			{Conditions: discoveryv1.EndpointConditions{Ready: &ready}},
		}
		r := startWatcher(t, newConfig(), fake.NewClientset(newService(), ownedSlice("shop-slicefeed", "svc-1"), ofBlue))
		synctest.Wait()
		if resolution := r.Get(shop); !isServed(resolution) {
			t.Fatalf("%+v", resolution)
		}
		without := newService()
		without.Labels = nil
		without.ResourceVersion = "7"
		r.applyService(without)
		synctest.Wait()
		resolution := r.Get(shop)
		if !isServed(resolution) || resolution.Warning == nil || len(resolution.Ports) != 1 {
			t.Fatalf("the Service cannot be managed on: %+v, rejected %v", resolution, resolution.Rejection)
		}
		if others := resolution.Slices[0]; others.Name != "of-blue" || len(others.Endpoints) != 3 ||
			!*others.Endpoints[1].Conditions.Ready {
			t.Errorf("whether another class serves is not known: %+v", others)
		}
		time.Sleep(time.Until(resolution.RecheckAt))
		if resolution := r.Get(shop); resolution.State != Leaving {
			t.Errorf("it is not left: %+v", resolution)
		}
	})
}
