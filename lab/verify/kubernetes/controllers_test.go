package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/audit"
)

// The accounts of controllers in kube-controller-manager, and what they put on their slices.
const (
	garbageCollector    = "system:serviceaccount:kube-system:generic-garbage-collector"
	namespaceController = "system:serviceaccount:kube-system:namespace-controller"

	endpointSliceController = "endpointslice-controller.k8s.io"
	mirroringController     = "endpointslicemirroring-controller.k8s.io"
)

// controllerManager runs all controllers of kube-controller-manager in the consuming cluster, each with an account of
// its own, so that the audit log names the one that wrote a slice.
func controllerManager(s *e2e.Setup, program string) {
	s.T.Helper()
	runProgram(s, "kube-controller-manager", program,
		"--kubeconfig="+credential(s, "kube-controller-manager", "system:kube-controller-manager"),
		"--use-service-account-credentials", "--leader-elect=false", "--secure-port=0")
}

// managedSlices selects the slices of a controller.
func managedSlices(controller string, all []*discoveryv1.EndpointSlice) (its []*discoveryv1.EndpointSlice) {
	for _, slice := range all {
		if slice.Labels[discoveryv1.LabelManagedBy] == controller {
			its = append(its, slice)
		}
	}
	return its
}

// hasSlicesOf reports that a controller has so many slices, and the writer one with these endpoints.
func hasSlicesOf(controller string, n int, owned func([]*discoveryv1.EndpointSlice) bool) func([]*discoveryv1.EndpointSlice) bool {
	return func(all []*discoveryv1.EndpointSlice) bool {
		return len(managedSlices(controller, all)) == n && owned(managedSlices("slicefeed-default", all))
	}
}

// legacy is an Endpoints object with one address.
func legacy(name string) *corev1.Endpoints { //nolint:staticcheck // deprecated, and mirrored all the same
	return &corev1.Endpoints{ //nolint:staticcheck // as above
		ObjectMeta: metav1.ObjectMeta{Namespace: pair.Namespace, Name: name},
		Subsets: []corev1.EndpointSubset{{ //nolint:staticcheck // as above
			Addresses: []corev1.EndpointAddress{{IP: "10.0.1.250"}},
			Ports:     []corev1.EndpointPort{{Name: "http", Port: pair.NodePort}},
		}},
	}
}

// pod makes a Pod that is ready, as a kubelet would, on a Node of its own.
func pod(f *e2e.Setup, labels map[string]string) {
	f.T.Helper()
	const name = "pod"
	nodes, pods := f.ConsumingClient().CoreV1().Nodes(), f.ConsumingClient().CoreV1().Pods(pair.Namespace)
	_, err := nodes.Create(f.Ctx(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}, metav1.CreateOptions{})
	f.Must(err)
	made, err := pods.Create(f.Ctx(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: name, Image: "registry.example.org/shop:v1"}}},
	}, metav1.CreateOptions{})
	f.Must(err)
	f.T.Cleanup(func() {
		ctx, at := context.WithoutCancel(f.T.Context()), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		f.Must(errors.Join(pods.Delete(ctx, name, at), nodes.Delete(ctx, name, metav1.DeleteOptions{})))
	})
	const address = "10.3.0.1"
	made.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	_, err = pods.UpdateStatus(f.Ctx(), made, metav1.UpdateOptions{})
	f.Must(err)
}

// slicesWritten are the answered writes of slices of a namespace since a moment, by everyone.
func slicesWritten(f *e2e.Setup, namespace string, since time.Time) []audit.Write {
	f.T.Helper()
	all, err := f.WritesBy(f.Ctx(), "")
	f.Must(err)
	var found []audit.Write
	for _, write := range all {
		if write.At.After(since) && strings.HasPrefix(write.Name, namespace+"/") {
			found = append(found, write)
		}
	}
	return found
}

func by(user string, all []audit.Write) (its []audit.Write) {
	for _, write := range all {
		if write.User == user {
			its = append(its, write)
		}
	}
	return its
}

func TestKubernetesControllersLeaveOwnedSlicesAlone(t *testing.T) {
	program := upstream(t, "kube-controller-manager")
	f := e2e.NewLabeled(t, e2e.Options{})
	controllerManager(f, program)
	begun := time.Now()
	f.StartAll()
	workers := f.Join(2)
	serve := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	endpoints := f.ConsumingClient().CoreV1().Endpoints(pair.Namespace)

	f.Step("the controllers work, on other Services", func(f *e2e.Setup) {
		selecting := f.CreateService(
			e2e.NewService("selecting", func(service *corev1.Service) { service.Spec.Selector = map[string]string{"app": "none"} }),
		)
		f.AwaitOf(selecting, "it has a slice, though it has no Pods", func(all []*discoveryv1.EndpointSlice) bool {
			return len(managedSlices(endpointSliceController, all)) == 1
		})
		mirrored := f.CreateService(e2e.NewService("mirrored"))
		_, err := endpoints.Create(f.Ctx(), legacy("mirrored"), metav1.CreateOptions{})
		f.Must(err)
		f.AwaitOf(mirrored, "its Endpoints object is mirrored", func(all []*discoveryv1.EndpointSlice) bool {
			return len(managedSlices(mirroringController, all)) == 1
		})
	})
	before := f.Slice().ResourceVersion
	f.Step("a mirrored slice beside ours comes and goes", func(f *e2e.Setup) {
		_, err := endpoints.Create(f.Ctx(), legacy(pair.Service), metav1.CreateOptions{})
		f.Must(err)
		f.AwaitOf(f.Service, "it is mirrored", hasSlicesOf(mirroringController, 1, serve))
		f.AwaitEventOn(f.Service, "LegacyEndpoints", "Delete Endpoints shop")
		f.Must(endpoints.Delete(f.Ctx(), pair.Service, metav1.DeleteOptions{}))
		f.AwaitOf(f.Service, "ours is left", hasSlicesOf(mirroringController, 0, serve))
		f.AwaitMetric(f.Writers[0], e2e.Managed, e2e.Equals(1))
	})
	if now := f.Slice().ResourceVersion; now != before {
		t.Errorf("the slice was written: version %s, and %s before", now, before)
	}
	f.Step("a Service that had a selector is served after the documented steps", func(f *e2e.Setup) {
		selector := map[string]string{"app": "cart"}
		pod(f, selector)
		cart := f.CreateService(e2e.NewLabeledService("cart", func(service *corev1.Service) { service.Spec.Selector = selector }))
		f.AwaitEventOn(cart, "ServiceHasSelector", "the Endpoints object cart")
		f.AwaitOf(cart, "Kubernetes has its slice", hasSlicesOf(endpointSliceController, 1, e2e.None))
		f.Until("it has its Endpoints object", func() bool {
			found, err := endpoints.Get(f.Ctx(), "cart", metav1.GetOptions{})
			return err == nil && len(found.Subsets) == 1
		})
		begun := time.Now()
		f.PatchService(cart, `{"spec":{"selector":null}}`)
		f.AwaitOf(cart, "the Endpoints object is mirrored", func(all []*discoveryv1.EndpointSlice) bool {
			return len(managedSlices(mirroringController, all)) == 1
		})
		f.AwaitEventOn(cart, "LegacyEndpoints", "Delete Endpoints cart")
		f.Must(endpoints.Delete(f.Ctx(), "cart", metav1.DeleteOptions{}))
		f.AwaitOf(cart, "the slice of the selector is left beside ours", func(all []*discoveryv1.EndpointSlice) bool {
			return len(all) == 2 && hasSlicesOf(endpointSliceController, 1, serve)(all)
		})
		f.Must(
			f.ConsumingClient().
				DiscoveryV1().
				EndpointSlices(pair.Namespace).
				DeleteCollection(f.Ctx(), metav1.DeleteOptions{}, metav1.ListOptions{
					LabelSelector: discoveryv1.LabelServiceName + "=cart," + discoveryv1.LabelManagedBy + "=" + endpointSliceController,
				}),
		)
		f.AwaitOf(cart, "ours alone is left", func(all []*discoveryv1.EndpointSlice) bool { return len(all) == 1 && serve(all) })
		if f.Saw(begun, e2e.NameOf(cart), func(all []*discoveryv1.EndpointSlice) bool { return !e2e.AnyReady(all) }) {
			f.T.Error("nothing was ready for a moment")
		}
	})
	for _, write := range slicesWritten(f, pair.Namespace, begun) {
		if strings.HasSuffix(write.Name, "-slicefeed") && write.User != pair.WriterUser {
			t.Errorf("%s of %s by %s", write.Verb, write.Name, write.User)
		}
	}
}

func TestGarbageCollectorDeletesTheSlicesOfADeletedServiceImport(t *testing.T) {
	program := upstream(t, "kube-controller-manager")
	f := e2e.NewLabeled(t, e2e.Options{Writer: map[string]string{"SERVICE_IMPORTS": "true"}})
	i := openImports(f)
	i.define()
	controllerManager(f, program)
	i.make(
		newImport(pair.Service, map[string]any{"slicefeed.dev/class": "default"},
			map[string]any{"slicefeed.dev/ports.default": fmt.Sprint(pair.NodePort)}),
	)
	f.StartAll()
	serve := pair.AreJust(pair.Ready, e2e.Addresses(f.Join(2))...)
	i.wait(pair.Service, "both serve", serve)
	begun := time.Now()
	f.Must(i.Delete(f.Ctx(), pair.Service, metav1.DeleteOptions{}))
	i.wait(pair.Service, "none is left", e2e.None)
	if written := slicesWritten(f, pair.Namespace, begun); len(by(garbageCollector, written)) != 1 || len(written) != 1 {
		t.Errorf("want one deletion by the garbage collector: %v", written)
	}
	f.Await("the Service of the same name is served", serve)
}

func TestGarbageCollectorDeletesTheSlicesOfADeletedService(t *testing.T) {
	program := upstream(t, "kube-controller-manager")
	f := e2e.NewLabeled(t, e2e.Options{})
	controllerManager(f, program)
	f.StartAll()
	workers := f.Join(2)
	serve := pair.AreJust(pair.Ready, e2e.Addresses(workers)...)
	services := f.ConsumingClient().CoreV1().Services(pair.Namespace)
	remove := func(f *e2e.Setup, policy metav1.DeletionPropagation) {
		f.T.Helper()
		f.Must(services.Delete(f.Ctx(), pair.Service, metav1.DeleteOptions{PropagationPolicy: &policy}))
	}
	gone := func(f *e2e.Setup) {
		f.T.Helper()
		f.Until("the Service is gone", func() bool {
			_, err := services.Get(f.Ctx(), pair.Service, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	again := func(f *e2e.Setup) {
		f.T.Helper()
		f.RecreateService(e2e.InClass)
		f.Await("its slices are the new one's", e2e.Owned(f))
		f.Await("both serve", serve)
	}
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		f.Step("with propagation "+string(policy), func(f *e2e.Setup) {
			begun := time.Now()
			remove(f, policy)
			f.T.Logf("deleted after %s", f.Await("none is left", e2e.None))
			gone(f)
			f.Until("the writer has seen that", func() bool {
				_, err := f.Writers[0].Metric(f.Ctx(), e2e.Managed)
				return err != nil // there is no such metric any more
			})
			written := slicesWritten(f, pair.Namespace, begun)
			if len(by(garbageCollector, written)) == 0 {
				f.T.Errorf("the garbage collector deleted nothing: %v", written)
			}
			if its := by(pair.WriterUser, written); len(its) != 0 {
				f.T.Errorf("the writer wrote too: %v", its)
			}
			again(f)
		})
	}
	f.Step("with propagation Orphan, a Service of the same name is served", func(f *e2e.Setup) {
		old := f.Slice().UID
		remove(f, metav1.DeletePropagationOrphan)
		gone(f)
		again(f)
		// A writer that learns of the lost owner before it learns of the deletion restores it, and the slice is collected.
		f.T.Logf("the slice stayed: %t", f.Slice().UID == old)
	})
	f.Step("a Service that is created again at once keeps its new slices", func(f *e2e.Setup) {
		for range 5 {
			old, begun := f.Slice().UID, time.Now()
			remove(f, metav1.DeletePropagationBackground)
			again(f)
			f.T.Logf("served again after %s; the garbage collector came first: %t", time.Since(begun), f.Slice().UID != old)
		}
		// The collector works on what was deleted first before this one.
		last := f.CreateService(e2e.NewLabeledService("last"))
		f.AwaitOf(last, "it is served", serve)
		f.Must(services.Delete(f.Ctx(), last.Name, metav1.DeleteOptions{}))
		f.AwaitOf(last, "its slices are deleted", e2e.None)
		if !e2e.Owned(f)(f.Now()) || !serve(f.Now()) {
			f.T.Errorf("the slices of the new Service are gone: %s", pair.Describe(f.Now()))
		}
	})
}

func TestNamespaceControllerDeletesANamespaceWhileTheWriterServesAnother(t *testing.T) {
	program := upstream(t, "kube-controller-manager")
	f := e2e.NewLabeled(t, e2e.Options{Writer: map[string]string{"WATCH_NAMESPACES": pair.Namespace + "," + pair.OtherNamespace}})
	controllerManager(f, program)
	f.Must(f.OpenNamespace(f.Ctx(), pair.OtherNamespace))
	f.StartAll()
	f.Join(2)
	namespaces := f.ConsumingClient().CoreV1().Namespaces()
	serve := func(f *e2e.Setup) *corev1.Service {
		cart := f.CreateService(e2e.NewLabeledService("cart", e2e.InNamespace(pair.OtherNamespace)))
		f.AwaitOf(cart, "it is served", pair.Are(pair.Ready, f.CatchUp().Address))
		return cart
	}
	cart := serve(f)
	f.Step("the namespace goes", func(f *e2e.Setup) {
		begun, logged := time.Now(), len(f.LogOf(f.Writers[0]))
		f.Must(namespaces.Delete(f.Ctx(), pair.OtherNamespace, metav1.DeleteOptions{}))
		f.Until("the namespace is gone", func() bool {
			_, err := namespaces.Get(f.Ctx(), pair.OtherNamespace, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		f.T.Logf("gone after %s", time.Since(begun))
		if !e2e.None(f.SlicesOf(cart)) {
			f.T.Errorf("slices are left: %s", pair.Describe(f.SlicesOf(cart)))
		}
		f.CatchUp() // the other Service follows
		written := slicesWritten(f, pair.OtherNamespace, begun)
		if len(by(namespaceController, written)) == 0 {
			f.T.Errorf("the namespace controller deleted no slices: %v", written)
		}
		its := by(pair.WriterUser, written)
		f.T.Logf("the writer's writes there: %v", its)
		if len(its) > 2 {
			f.T.Errorf("the writer wrote %d times into a namespace that was being deleted", len(its))
		}
		f.T.Logf("the writer logged:\n%s", f.LogOf(f.Writers[0])[logged:])
		f.Must(f.Writers[0].Check(f.Ctx(), "/livez"))
		if !f.IsLeading(f.Writers[0]) {
			f.T.Error("the writer stepped down")
		}
	})
	f.Step("the namespace comes back", func(f *e2e.Setup) {
		f.Must(f.OpenNamespace(f.Ctx(), pair.OtherNamespace))
		serve(f)
	})
}
