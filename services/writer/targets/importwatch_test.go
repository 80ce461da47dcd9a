package targets

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func importsOf(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: version, Resource: "serviceimports"}
}

// newImports returns an API server that serves ServiceImports in one version; empty: in none, until it is set.
func newImports(version string, objects ...runtime.Object) (*dynamicfake.FakeDynamicClient, *atomic.Pointer[string]) {
	client := newImportClient(objects...)
	served := &atomic.Pointer[string]{}
	served.Store(&version)
	missing := func(a k8stesting.Action) error {
		if a.GetResource().Version == *served.Load() {
			return nil
		}
		return apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	}
	client.PrependReactor("list", "serviceimports", func(a k8stesting.Action) (bool, runtime.Object, error) {
		err := missing(a)
		return err != nil, nil, err
	})
	client.PrependWatchReactor("serviceimports", func(a k8stesting.Action) (bool, watch.Interface, error) {
		err := missing(a)
		return err != nil, nil, err
	})
	return client, served
}

func TestIPsOfAServiceImportConcernItsNamespaceOnly(t *testing.T) {
	newWithIP := func(namespace, ip string) *unstructured.Unstructured {
		object := newImportObject()
		object.SetAPIVersion("multicluster.x-k8s.io/v1beta1")
		object.SetNamespace(namespace)
		if err := unstructured.SetNestedStringSlice(object.Object, []string{ip}, "spec", "ips"); err != nil {
			t.Fatal(err)
		}
		return object
	}
	cfg := configWithImports()
	cfg.Namespaces = []string{"*"}
	imports, _ := newImports("v1beta1", newWithIP("web", "10.112.0.7"), newWithIP("tenant", "10.0.1.11"))
	r := startWatcherOfImports(t, cfg, fake.NewClientset(newService()), imports)
	r.waitFor(Key{Namespace: "tenant", Name: "shop", Import: true}, "the ServiceImport of the tenant", isServed)
	for _, key := range []Key{shopImport, shop} {
		denied := r.Get(key).ClusterIPs
		for text, want := range map[string]bool{"10.96.0.9": true, "10.112.0.7": true, "10.0.1.11": false} {
			if _, got := denied[netip.MustParseAddr(text)]; got != want {
				t.Errorf("%s: %s is denied: %t, want %t", key, text, got, want)
			}
		}
	}
}

func TestFollowsServiceImports(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			object := newImportObject()
			object.SetAPIVersion("multicluster.x-k8s.io/" + version)
			if err := unstructured.SetNestedStringSlice(object.Object, []string{"10.112.0.7"}, "spec", "ips"); err != nil {
				t.Fatal(err)
			}
			imports, _ := newImports(version, object)
			r := startWatcherOfImports(
				t,
				configWithImports(),
				fake.NewClientset(newService(), ownedSlice("shop-slicefeed", "svc-1")),
				imports,
			)
			resolution := r.waitFor(shopImport, "the ServiceImport", isServed)
			if resolution.Owner.Kind != "ServiceImport" || resolution.Owner.APIVersion != "multicluster.x-k8s.io/"+version ||
				len(resolution.Slices) != 0 {
				t.Errorf("%+v", resolution)
			}
			if _, ok := resolution.ClusterIPs[netip.MustParseAddr("10.112.0.7")]; !ok {
				t.Error("the IP of the ServiceImport could become an endpoint")
			}
			r.poll("the Service is known", func() bool { return r.Get(shop).State != Unknown })
			if resolution := r.Get(shop); len(resolution.Slices) != 1 || resolution.Owner.Kind != "Service" {
				t.Errorf("the Service of the same name: %+v", resolution)
			}

			r.applySlice(ownedImportSlice("shop.serviceimport-slicefeed", "import-1"))
			r.waitFor(shopImport, "our slice", func(v Resolution) bool { return isServed(v) && len(v.Slices) == 1 })
			unlabeled := ownedImportSlice("shop.serviceimport-slicefeed", "import-1")
			unlabeled.Labels, unlabeled.Name = map[string]string{"endpointslice.kubernetes.io/managed-by": "slicefeed-default"}, "renamed"
			r.applySlice(unlabeled) // only its owner says whose it is
			r.waitFor(shopImport, "the slice without its label", func(v Resolution) bool { return len(v.Slices) == 2 })

			r.poll("a watch has begun", func() bool { return watching(imports, version) }) // the fake client loses changes before
			object = object.DeepCopy()
			object.SetLabels(nil)
			object.SetResourceVersion("2")
			client := imports.Resource(importsOf(version)).Namespace("web")
			if _, err := client.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			r.waitFor(shopImport, "the label's removal", func(v Resolution) bool { return isServed(v) && v.Warning != nil })
			if err := client.Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			r.waitFor(shopImport, "its end", func(v Resolution) bool { return v.State == Gone })
			if resolution := r.Get(shop); !isServed(resolution) {
				t.Errorf("the Service of the same name: %+v", resolution)
			}
		})
	}
}

// watching reports whether a watch of a version has begun.
func watching(client *dynamicfake.FakeDynamicClient, version string) bool {
	return slices.ContainsFunc(
		client.Actions(),
		func(a k8stesting.Action) bool { return a.GetVerb() == "watch" && a.GetResource().Version == version },
	)
}

// poll waits for what no signal reports.
func (r *testCluster) poll(what string, ok func() bool) {
	r.t.Helper()
	err := wait.PollUntilContextTimeout(
		r.t.Context(),
		10*time.Millisecond,
		20*time.Second,
		true,
		func(context.Context) (bool, error) { return ok(), nil },
	)
	if err != nil {
		r.t.Fatalf("waited until %s: %v; synced: %v; ServiceImports: %v", what, err, r.Synced(), r.ImportsServed())
	}
}

func TestMissingServiceImportsDoNotConcernServices(t *testing.T) {
	imports, served := newImports("", newImportObject())
	r := startWatcherOfImports(t, configWithImports(), fake.NewClientset(newService()), imports)
	r.waitFor(shop, "the Service", isServed)
	r.poll("ServiceImports are known to be missing", func() bool { return r.ImportsServed() != nil && r.Synced() == nil })
	if err := r.ImportsServed(); !errors.Is(err, errImportsNotServed) ||
		!strings.Contains(err.Error(), "install the CustomResourceDefinition") {
		t.Error(err)
	}
	if resolution := r.Get(shopImport); resolution.State != Unknown {
		t.Errorf("%+v", resolution)
	}
	version := "v1beta1"
	served.Store(&version)
	r.waitFor(shopImport, "the ServiceImport, once it is served", isServed)
	r.informers["web"].importsNotServed.Store(true) // as when the definition is deleted
	if err := errors.Join(r.ImportsServed(), r.Synced()); err != nil {
		t.Errorf("the last state counts: %v", err)
	}
}

func TestWaitsForServiceImportsThatCannotBeRead(t *testing.T) {
	imports, _ := newImports("v1beta1")
	imports.PrependReactor("list", "serviceimports", func(a k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no rule"))
	})
	r := startWatcherOfImports(t, configWithImports(), fake.NewClientset(newService()), imports)
	r.waitFor(shop, "the Service", isServed)
	r.poll("the missing permission is reported", func() bool {
		err := r.Synced()
		return err != nil && strings.Contains(err.Error(), "ServiceImports not synced in namespace web (") &&
			strings.Contains(err.Error(), "forbidden") &&
			r.ImportsServed() == nil
	})
}
