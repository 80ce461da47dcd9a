package e2e

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
func (s *stage) controllerManager(program string) {
	s.t.Helper()
	s.run("kube-controller-manager", program,
		"--kubeconfig="+s.credential("kube-controller-manager", "system:kube-controller-manager"),
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
func (f *fleet) pod(labels map[string]string) {
	f.t.Helper()
	const name = "pod"
	nodes, pods := f.ConsumingClient().CoreV1().Nodes(), f.ConsumingClient().CoreV1().Pods(pair.Namespace)
	_, err := nodes.Create(f.ctx(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}, metav1.CreateOptions{})
	f.must(err)
	made, err := pods.Create(f.ctx(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: name, Image: "registry.example.org/shop:v1"}}},
	}, metav1.CreateOptions{})
	f.must(err)
	f.t.Cleanup(func() {
		ctx, at := context.WithoutCancel(f.t.Context()), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		f.must(errors.Join(pods.Delete(ctx, name, at), nodes.Delete(ctx, name, metav1.DeleteOptions{})))
	})
	const address = "10.3.0.1"
	made.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	_, err = pods.UpdateStatus(f.ctx(), made, metav1.UpdateOptions{})
	f.must(err)
}

// slicesWritten are the answered writes of slices of a namespace since a moment, by everyone.
func (f *fleet) slicesWritten(namespace string, since time.Time) []audit.Write {
	f.t.Helper()
	all, err := f.WritesBy(f.ctx(), "")
	f.must(err)
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
	f := enterFleet(t, script{})
	f.controllerManager(program)
	begun := time.Now()
	f.start()
	workers := f.join(2)
	serve := pair.AreJust(pair.Ready, addresses(workers)...)
	endpoints := f.ConsumingClient().CoreV1().Endpoints(pair.Namespace)

	f.step("the controllers work, on other Services", func(f *fleet) {
		selecting := f.make(plain("selecting", func(service *corev1.Service) { service.Spec.Selector = map[string]string{"app": "none"} }))
		f.wait(selecting, "it has a slice, though it has no Pods", func(all []*discoveryv1.EndpointSlice) bool {
			return len(managedSlices(endpointSliceController, all)) == 1
		})
		mirrored := f.make(plain("mirrored"))
		_, err := endpoints.Create(f.ctx(), legacy("mirrored"), metav1.CreateOptions{})
		f.must(err)
		f.wait(mirrored, "its Endpoints object is mirrored", func(all []*discoveryv1.EndpointSlice) bool {
			return len(managedSlices(mirroringController, all)) == 1
		})
	})
	before := f.slice().ResourceVersion
	f.step("a mirrored slice beside ours comes and goes", func(f *fleet) {
		_, err := endpoints.Create(f.ctx(), legacy(pair.Service), metav1.CreateOptions{})
		f.must(err)
		f.wait(f.service, "it is mirrored", hasSlicesOf(mirroringController, 1, serve))
		f.tells(f.service, "LegacyEndpoints", "Delete Endpoints shop")
		f.must(endpoints.Delete(f.ctx(), pair.Service, metav1.DeleteOptions{}))
		f.wait(f.service, "ours is left", hasSlicesOf(mirroringController, 0, serve))
		f.metric(f.writers[0], managed, equals(1))
	})
	if now := f.slice().ResourceVersion; now != before {
		t.Errorf("the slice was written: version %s, and %s before", now, before)
	}
	f.step("a Service that had a selector is served after the documented steps", func(f *fleet) {
		selector := map[string]string{"app": "cart"}
		f.pod(selector)
		cart := f.make(labelled("cart", func(service *corev1.Service) { service.Spec.Selector = selector }))
		f.tells(cart, "ServiceHasSelector", "the Endpoints object cart")
		f.wait(cart, "Kubernetes has its slice", hasSlicesOf(endpointSliceController, 1, none))
		f.until("it has its Endpoints object", func() bool {
			found, err := endpoints.Get(f.ctx(), "cart", metav1.GetOptions{})
			return err == nil && len(found.Subsets) == 1
		})
		begun := time.Now()
		f.patch(cart, `{"spec":{"selector":null}}`)
		f.wait(cart, "the Endpoints object is mirrored", func(all []*discoveryv1.EndpointSlice) bool {
			return len(managedSlices(mirroringController, all)) == 1
		})
		f.tells(cart, "LegacyEndpoints", "Delete Endpoints cart")
		f.must(endpoints.Delete(f.ctx(), "cart", metav1.DeleteOptions{}))
		f.wait(cart, "the slice of the selector is left beside ours", func(all []*discoveryv1.EndpointSlice) bool {
			return len(all) == 2 && hasSlicesOf(endpointSliceController, 1, serve)(all)
		})
		f.must(
			f.ConsumingClient().
				DiscoveryV1().
				EndpointSlices(pair.Namespace).
				DeleteCollection(f.ctx(), metav1.DeleteOptions{}, metav1.ListOptions{
					LabelSelector: discoveryv1.LabelServiceName + "=cart," + discoveryv1.LabelManagedBy + "=" + endpointSliceController,
				}),
		)
		f.wait(cart, "ours alone is left", func(all []*discoveryv1.EndpointSlice) bool { return len(all) == 1 && serve(all) })
		if f.seen.Saw(begun, nameOf(cart), func(all []*discoveryv1.EndpointSlice) bool { return !anyReady(all) }) {
			f.t.Error("nothing was ready for a moment")
		}
	})
	for _, write := range f.slicesWritten(pair.Namespace, begun) {
		if strings.HasSuffix(write.Name, "-slicefeed") && write.User != pair.WriterUser {
			t.Errorf("%s of %s by %s", write.Verb, write.Name, write.User)
		}
	}
}

func TestGarbageCollectorDeletesTheSlicesOfADeletedServiceImport(t *testing.T) {
	program := upstream(t, "kube-controller-manager")
	f := enterFleet(t, script{writer: map[string]string{"SERVICE_IMPORTS": "true"}})
	i := openImports(f.stage)
	i.define()
	f.controllerManager(program)
	i.make(
		newImport(
			pair.Service,
			map[string]any{"slicefeed.dev/class": "default"},
			map[string]any{"slicefeed.dev/ports.default": fmt.Sprint(pair.NodePort)},
		),
	)
	f.start()
	serve := pair.AreJust(pair.Ready, addresses(f.join(2))...)
	i.wait(pair.Service, "both serve", serve)
	begun := time.Now()
	f.must(i.Delete(f.ctx(), pair.Service, metav1.DeleteOptions{}))
	i.wait(pair.Service, "none is left", none)
	if written := f.slicesWritten(pair.Namespace, begun); len(by(garbageCollector, written)) != 1 || len(written) != 1 {
		t.Errorf("want one deletion by the garbage collector: %v", written)
	}
	f.slices("the Service of the same name is served", serve)
}

func TestGarbageCollectorDeletesTheSlicesOfADeletedService(t *testing.T) {
	program := upstream(t, "kube-controller-manager")
	f := enterFleet(t, script{})
	f.controllerManager(program)
	f.start()
	workers := f.join(2)
	serve := pair.AreJust(pair.Ready, addresses(workers)...)
	services := f.ConsumingClient().CoreV1().Services(pair.Namespace)
	remove := func(f *fleet, policy metav1.DeletionPropagation) {
		f.t.Helper()
		f.must(services.Delete(f.ctx(), pair.Service, metav1.DeleteOptions{PropagationPolicy: &policy}))
	}
	gone := func(f *fleet) {
		f.t.Helper()
		f.until("the Service is gone", func() bool {
			_, err := services.Get(f.ctx(), pair.Service, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	again := func(f *fleet) {
		f.t.Helper()
		f.createService(inClass)
		f.slices("its slices are the new one's", owned(f.stage))
		f.slices("both serve", serve)
	}
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		f.step("with propagation "+string(policy), func(f *fleet) {
			begun := time.Now()
			remove(f, policy)
			f.t.Logf("deleted after %s", f.slices("none is left", none))
			gone(f)
			f.until("the writer has seen that", func() bool {
				_, err := f.writers[0].Metric(f.ctx(), managed)
				return err != nil // there is no such metric any more
			})
			written := f.slicesWritten(pair.Namespace, begun)
			if len(by(garbageCollector, written)) == 0 {
				f.t.Errorf("the garbage collector deleted nothing: %v", written)
			}
			if its := by(pair.WriterUser, written); len(its) != 0 {
				f.t.Errorf("the writer wrote too: %v", its)
			}
			again(f)
		})
	}
	f.step("with propagation Orphan, a Service of the same name is served", func(f *fleet) {
		old := f.slice().UID
		remove(f, metav1.DeletePropagationOrphan)
		gone(f)
		again(f)
		// A writer that learns of the lost owner before it learns of the deletion restores it, and the slice is collected.
		f.t.Logf("the slice stayed: %t", f.slice().UID == old)
	})
	f.step("a Service that is created again at once keeps its new slices", func(f *fleet) {
		for range 5 {
			old, begun := f.slice().UID, time.Now()
			remove(f, metav1.DeletePropagationBackground)
			again(f)
			f.t.Logf("served again after %s; the garbage collector came first: %t", time.Since(begun), f.slice().UID != old)
		}
		// The collector works on what was deleted first before this one.
		last := f.make(labelled("last"))
		f.wait(last, "it is served", serve)
		f.must(services.Delete(f.ctx(), last.Name, metav1.DeleteOptions{}))
		f.wait(last, "its slices are deleted", none)
		if !owned(f.stage)(f.Now()) || !serve(f.Now()) {
			f.t.Errorf("the slices of the new Service are gone: %s", pair.Describe(f.Now()))
		}
	})
}

func TestNamespaceControllerDeletesANamespaceWhileTheWriterServesAnother(t *testing.T) {
	program := upstream(t, "kube-controller-manager")
	f := enterFleet(t, script{writer: map[string]string{"WATCH_NAMESPACES": pair.Namespace + "," + pair.OtherNamespace}})
	f.controllerManager(program)
	f.must(f.OpenNamespace(f.ctx(), pair.OtherNamespace))
	f.start()
	f.join(2)
	namespaces := f.ConsumingClient().CoreV1().Namespaces()
	serve := func(f *fleet) *corev1.Service {
		cart := f.make(labelled("cart", inNamespace(pair.OtherNamespace)))
		f.wait(cart, "it is served", pair.Are(pair.Ready, f.told().Address))
		return cart
	}
	cart := serve(f)
	f.step("the namespace goes", func(f *fleet) {
		begun, logged := time.Now(), len(f.log(f.writers[0]))
		f.must(namespaces.Delete(f.ctx(), pair.OtherNamespace, metav1.DeleteOptions{}))
		f.until("the namespace is gone", func() bool {
			_, err := namespaces.Get(f.ctx(), pair.OtherNamespace, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		f.t.Logf("gone after %s", time.Since(begun))
		if !none(f.of(cart)) {
			f.t.Errorf("slices are left: %s", pair.Describe(f.of(cart)))
		}
		f.told() // the other Service follows
		written := f.slicesWritten(pair.OtherNamespace, begun)
		if len(by(namespaceController, written)) == 0 {
			f.t.Errorf("the namespace controller deleted no slices: %v", written)
		}
		its := by(pair.WriterUser, written)
		f.t.Logf("the writer's writes there: %v", its)
		if len(its) > 2 {
			f.t.Errorf("the writer wrote %d times into a namespace that was being deleted", len(its))
		}
		f.t.Logf("the writer logged:\n%s", f.log(f.writers[0])[logged:])
		f.must(f.writers[0].Check(f.ctx(), "/livez"))
		if !f.leading(f.writers[0]) {
			f.t.Error("the writer stepped down")
		}
	})
	f.step("the namespace comes back", func(f *fleet) {
		f.must(f.OpenNamespace(f.ctx(), pair.OtherNamespace))
		serve(f)
	})
}
