package targets

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

func isServed(v Resolution) bool { return v.Synced && v.Relevant && v.Rejection == nil && !v.OptedOut }

func TestFollowsNamedTarget(t *testing.T) {
	r := startTargets(t, configWithNamedTarget(), fake.NewClientset(newSlice("by-hand", "hand")))
	unlabeled := newService()
	unlabeled.Labels = nil
	resolution := r.waitFor(shop, "no Service", func(v Resolution) bool { return v.Synced && v.Rejection != nil })
	if resolution.Rejection.Reason != "ServiceNotFound" || resolution.ServiceRef.UID != "" {
		t.Errorf("rejected: %v", resolution.Rejection)
	}
	r.applyService(unlabeled)
	resolution = r.waitFor(shop, "the Service", isServed)
	if resolution.Target.UID != "svc-1" || resolution.ServiceRef.UID != "svc-1" {
		t.Errorf("UID is %s", resolution.Target.UID)
	}
	if len(resolution.Slices) != 1 || resolution.Slices[0].Endpoints != nil {
		t.Errorf("a foreign slice should come without endpoints: %+v", resolution.Slices)
	}
	selecting := unlabeled.DeepCopy()
	selecting.Spec.Selector = map[string]string{"app": "shop"}
	r.applyService(selecting)
	r.waitFor(shop, "the selector", func(v Resolution) bool {
		return v.Rejection != nil && v.Rejection.Reason == "ServiceHasSelector" && v.ServiceRef.UID == "svc-1"
	})
	r.deleteService(shop)
	r.waitFor(shop, "the Service's end", func(v Resolution) bool { return v.Rejection != nil && v.Rejection.Reason == "ServiceNotFound" })
	again := unlabeled.DeepCopy()
	again.UID = "svc-2"
	r.applyService(again)
	r.waitFor(shop, "the Service created again", func(v Resolution) bool { return isServed(v) && v.Target.Owner.UID == "svc-2" })
	r.applySlice(newSlice("shop-nodes", "slicefeed-default"))
	resolution = r.waitFor(shop, "our slice, whole", func(v Resolution) bool { return len(v.Slices) == 2 && len(v.Slices[1].Endpoints) == 1 })
	if diff := cmp.Diff([]string{"by-hand", "shop-nodes"}, sliceNames(resolution.Slices)); diff != "" {
		t.Error(diff)
	}
}

func TestFollowsLabeledServiceUntilOptOut(t *testing.T) {
	plain := newService()
	plain.Labels = nil
	r := startTargets(t, newConfig(), fake.NewClientset(plain))
	if resolution := r.Get(shop); resolution.Synced && resolution.Relevant {
		t.Error("relevant without a label")
	}
	r.applyService(newService())
	r.waitFor(shop, "the label", isServed)
	r.applySlice(ownedSlice("shop-slicefeed", "svc-1"))
	r.waitFor(shop, "our slice", func(v Resolution) bool { return isServed(v) && len(v.Slices) == 1 })
	r.applyService(plain)
	r.waitFor(shop, "the label's removal", func(v Resolution) bool { return isServed(v) && v.PendingOptOut != nil })
	without := plain.DeepCopy()
	without.Labels = map[string]string{LabelClass: "none"}
	r.applyService(without)
	r.waitFor(shop, "the opting out", func(v Resolution) bool { return v.Relevant && v.OptedOut && len(v.Slices) == 1 && !v.Paused })
	paused := without.DeepCopy()
	paused.Annotations["slicefeed.dev/paused"] = "true"
	r.applyService(paused)
	r.waitFor(shop, "the pause", func(v Resolution) bool { return v.OptedOut && v.Paused })
	r.deleteSlice("web", "shop-slicefeed")
	r.waitFor(shop, "the end", func(v Resolution) bool { return v.Synced && !v.Relevant && !v.OptedOut })
	if len(r.memories) != 0 || len(r.returned) != 0 {
		t.Errorf("memory of an irrelevant Service: %v, %v", r.memories, r.returned)
	}
	r.applySlice(newSlice("shop-of-others", "hand"))
	r.applyService(namedService("cart", "svc-9"))
	r.waitFor(Key{"web", "cart"}, "another Service", isServed)
	if at := slices.Index(r.taken, Key{"web", "cart"}); slices.Contains(r.taken[at:], shop) {
		t.Errorf("reported again though irrelevant: %v", r.taken)
	}
}

func TestDeletedServiceIsIrrelevant(t *testing.T) {
	r := startTargets(t, newConfig(), fake.NewClientset(newService(), ownedSlice("shop-slicefeed", "svc-1")))
	r.waitFor(shop, "the Service", isServed)
	r.deleteService(shop)
	r.waitFor(shop, "its end", func(v Resolution) bool { return v.Synced && !v.Relevant && !v.OptedOut && v.Rejection == nil })
}

func TestRecreatedServiceHasNoMemory(t *testing.T) {
	first := newService()
	r := startTargets(t, newConfig(), fake.NewClientset(first, ownedSlice("shop-slicefeed", "svc-1")))
	r.waitFor(shop, "the Service", isServed)
	invalid := newService()
	invalid.Annotations["slicefeed.dev/probe"] = "ping"
	r.applyService(invalid)
	r.waitFor(shop, "the annotation error", func(v Resolution) bool { return isServed(v) && v.AnnotationError != nil })
	// Deleted and recreated between two reads.
	again := invalid.DeepCopy()
	again.UID = "svc-2"
	r.applyService(again)
	resolution := r.waitFor(shop, "the new one", func(v Resolution) bool { return v.ServiceRef.UID == "svc-2" })
	if resolution.Rejection == nil || resolution.Rejection.Reason != "InvalidAnnotation" {
		t.Errorf("the settings of the one before are not its own: %v", resolution.Rejection)
	}
	again.Annotations = nil
	r.applyService(again)
	resolution = r.waitFor(shop, "the repaired one", isServed)
	if desired := resolution.Target.Desired(); len(resolution.Slices) != 1 || !desired.Owns(resolution.Slices[0]) || desired.Owner.UID != "svc-2" {
		t.Errorf("the old slice is not owned: %+v", resolution.Slices)
	}
}

func TestRelabeledSliceStillAffectsOwner(t *testing.T) {
	r := startTargets(t, newConfig(), fake.NewClientset(newService(), ownedSlice("renamed", "svc-1")))
	r.waitFor(shop, "the slice", func(v Resolution) bool { return isServed(v) && len(v.Slices) == 1 })
	altered := ownedSlice("renamed", "svc-1")
	altered.Labels["kubernetes.io/service-name"] = "cart"
	altered.ResourceVersion = "7"
	r.applySlice(altered)
	r.waitFor(shop, "the alteration", func(v Resolution) bool {
		return len(v.Slices) == 1 && v.Slices[0].Labels["kubernetes.io/service-name"] == "cart" && v.Target.Desired().Owns(v.Slices[0])
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
		named      string
		want       []string
	}{
		"some":                  {[]string{"a", "b", "a"}, "", []string{"a", "b"}},
		"besides the named one": {[]string{"a"}, "c", []string{"a", "c"}},
		"only the named one":    {nil, "c", []string{"c"}},
		"all":                   {[]string{"*"}, "c", []string{"a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newConfig()
			cfg.Namespaces = tc.namespaces
			if tc.named != "" {
				cfg.NamedTarget = NamedTarget{Namespace: tc.named, Service: "shop"}
			}
			r := startTargets(t, cfg, fake.NewClientset(in("a"), in("b"), in("c")))
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
	if _, err := New(Config{}); err == nil {
		t.Error("no namespace at all makes no sense")
	}
}

func TestUnreadableNamespaceDelaysNoOther(t *testing.T) {
	client := fake.NewClientset(newService())
	client.PrependReactor("list", "endpointslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		return action.GetNamespace() == "secret", nil, errors.New("endpointslices is forbidden")
	})
	cfg := newConfig()
	cfg.Namespaces = []string{"web", "secret"}
	cfg.NamedTarget = NamedTarget{Namespace: "secret", Service: "shop"}
	r := startTargets(t, cfg, client)
	r.waitFor(shop, "the Service of the other namespace", isServed)
	if resolution := r.Get(Key{"secret", "shop"}); resolution.Synced {
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
	if err == nil || strings.Contains(err.Error(), "web") || !strings.Contains(err.Error(), "namespace secret (failed to list *v1.EndpointSlice: endpointslices is forbidden)") {
		t.Errorf("%v", err)
	}
}

func TestCollectsClusterIPsOfWatchedServices(t *testing.T) {
	other := namedService("cart", "svc-2")
	other.Labels = nil
	other.Spec.ClusterIP, other.Spec.ClusterIPs = "10.96.0.10", []string{"10.96.0.10", "fd00::10"}
	r := startTargets(t, newConfig(), fake.NewClientset(newService(), other))
	before := r.waitFor(shop, "the Service", isServed).ClusterIPs
	want := map[netip.Addr]struct{}{}
	for _, a := range []string{"10.96.0.9", "10.96.0.10", "fd00::10"} {
		want[netip.MustParseAddr(a)] = struct{}{}
	}
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, before, same); diff != "" {
		t.Error(diff)
	}
	r.deleteService(Key{"web", "cart"})
	mine := newService()
	mine.Annotations["slicefeed.dev/list-unready"] = "false"
	r.applyService(mine)
	after := r.waitFor(shop, "a change after that", func(v Resolution) bool { return !v.Target.Settings.ListUnready }).ClusterIPs
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
	cfg.Client = client
	targets, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := targets.informers["web"]
	c := &countingIndexer{Indexer: a.slices.GetIndexer(), t: t}
	a.slices = countingInformer{a.slices, c}
	r := startCluster(t, targets, client)
	r.takeAll(many)
	r.taken, c.returned = nil, 0
	key := Key{"web", "svc-123"}
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
	// Two slices by name and one by owner, for TakeChanged and for Get in await.
	if c.returned != 6 {
		t.Errorf("%d slices were read", c.returned)
	}

	r.taken = nil
	another := namedService("svc-321", "uid-svc-321")
	another.Annotations["slicefeed.dev/list-unready"] = "false"
	r.applyService(another)
	r.waitFor(keyOf(another), "the change of a Service", func(v Resolution) bool { return !v.Target.Settings.ListUnready })
	if diff := cmp.Diff([]Key{keyOf(another)}, r.taken); diff != "" {
		t.Error(diff)
	}
}

func TestRelistWithoutChangesIsIgnored(t *testing.T) {
	a, b, c := newService(), newService(), newService()
	a.ResourceVersion, b.ResourceVersion, c.ResourceVersion = "5", "5", "6"
	if !equalVersions(a, b) || equalVersions(a, c) || equalVersions(metav1.Object(a), nil) {
		t.Error("only the resource version shows a change")
	}
}

func TestDropsUnusedFields(t *testing.T) {
	targets, err := New(configWithNamedTarget())
	if err != nil {
		t.Fatal(err)
	}
	fat := namedService("cart", "svc-2")
	fat.Labels = map[string]string{"a": "b", LabelClass: "blue"}
	fat.Annotations = map[string]string{"kubectl": "much", "slicefeed.dev/paused": "true", "slicefeed.dev/probe": "tcp"}
	got, err := targets.trimService(fat)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Service{}
	want.Namespace, want.Name, want.UID = "web", "cart", "svc-2"
	want.Labels, want.Annotations = map[string]string{LabelClass: "blue"}, map[string]string{"slicefeed.dev/paused": "true"}
	want.Spec.ClusterIP, want.Spec.ClusterIPs = "None", []string{"None"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	mine := newService()
	mine.Labels = nil
	if got, err := targets.trimService(mine); err != nil || len(got.(*corev1.Service).Spec.Ports) != 1 {
		t.Errorf("the named one is needed whole: %+v, %v", got, err)
	}
}
