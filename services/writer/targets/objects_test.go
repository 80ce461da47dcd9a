package targets

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	dynamicfake "k8s.io/client-go/dynamic/fake"
)

// newService returns web/shop, a valid, labeled Service.
func newService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "shop", UID: "svc-1",
			Labels: map[string]string{"slicefeed.dev/class": "default"}, Annotations: map[string]string{},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(30080), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// namedService returns a headless Service of that name.
func namedService(name string, uid types.UID) *corev1.Service {
	svc := newService()
	svc.Name, svc.UID = name, uid
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	return svc
}

// newSlice returns a slice of the Service web/shop.
func newSlice(name, manager string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: "shop", discoveryv1.LabelManagedBy: manager,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
}

// ownedSlice returns a slice that the writer "slicefeed" of class default wrote for the Service web/shop of that UID.
func ownedSlice(name string, owner types.UID) *discoveryv1.EndpointSlice {
	s := newSlice(name, "slicefeed-default")
	s.Labels["slicefeed.dev/writer"] = "slicefeed"
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "shop", UID: owner}}
	return s
}

// sliceNames returns the names of slices.
func sliceNames(list []*discoveryv1.EndpointSlice) []string {
	var all []string
	for _, s := range list {
		all = append(all, s.Name)
	}
	return all
}

// newImportObject returns the ServiceImport web/shop, valid and labeled, as the API server returns it.
func newImportObject() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1beta1",
		"kind":       "ServiceImport",
		"metadata": map[string]any{
			"namespace":       "web",
			"name":            "shop",
			"uid":             "import-1",
			"resourceVersion": "1",
			"labels": map[string]any{
				"slicefeed.dev/class": "default",
			},
			"annotations": map[string]any{"slicefeed.dev/ports.default": "http=30080"},
		},
		"spec": map[string]any{
			"type":  "ClusterSetIP",
			"ports": []any{map[string]any{"name": "http", "port": int64(80), "protocol": "TCP"}},
		},
	}}
}

// ownedImportSlice returns a slice that the writer "slicefeed" of class default wrote for the ServiceImport web/shop of
// that UID.
func ownedImportSlice(name string, owner types.UID) *discoveryv1.EndpointSlice {
	s := ownedSlice(name, owner)
	delete(s.Labels, discoveryv1.LabelServiceName)
	s.Labels["multicluster.kubernetes.io/service-name"], s.Labels["multicluster.kubernetes.io/source-cluster"] = "shop", "default"
	s.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "multicluster.x-k8s.io/v1beta1", Kind: "ServiceImport", Name: "shop", UID: owner},
	}
	return s
}

// newImportClient returns a fake client of an API server that has ServiceImports.
func newImportClient(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	kinds := map[schema.GroupVersionResource]string{}
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		kinds[schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: version, Resource: "serviceimports"}] = "ServiceImportList"
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
}
