package charts

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// serverFields are the fields that the API server, or a controller, sets for each cluster or object: no manifest can
// have them.
var serverFields = map[string]string{
	"status":                                       "",
	"metadata.creationTimestamp":                   "",
	"metadata.generation":                          "",
	"metadata.managedFields":                       "",
	"metadata.resourceVersion":                     "",
	"metadata.uid":                                 "",
	"Service.spec.clusterIP":                       "allocated",
	"Service.spec.clusterIPs":                      "allocated",
	"Service.spec.ipFamilies":                      "those of the cluster",
	"Service.spec.ipFamilyPolicy":                  "that of the cluster",
	"Service.spec.ports[0].nodePort":               "allocated",
	"Deployment.spec.template.spec.serviceAccount": "the deprecated alias of serviceAccountName",
}

// TestWhatIsAppliedIsReadBackAsItWas applies each object that the charts can render, and compares it with what the API
// server returns. Argo CD reports a difference as drift, and no sync removes it. The Pod of helm test is only applied.
func TestWhatIsAppliedIsReadBackAsItWas(t *testing.T) {
	c := startCluster(t)
	read := c.reader()
	kinds := map[string]int{}
	for _, row := range []struct{ name, chart, flags string }{
		{"inventory-everything", inventory, "-f deploy/slicefeed-inventory/tests/everything.yaml"},
		{"inventory-service", inventory, "-f deploy/slicefeed-inventory/examples/minimal.yaml --set settings.SOURCE_KIND=service,settings.SOURCE_SERVICE=shop/web,service.type=NodePort,service.nodePort=30444"},
		{"writer-everything", writer, "-f deploy/slicefeed-writer/tests/everything.yaml"},
		{"writer-sources", writer, "-f deploy/slicefeed-writer/examples/several-sources.yaml"},
		{"writer-everywhere", writer, "-f deploy/slicefeed-writer/examples/minimal.yaml --set 'settings.WATCH_NAMESPACES=*,policy.namespaces={shop}'"},
	} {
		text, objects := c.render(row.name, row.chart, row.flags)
		if err := errors.Join(c.ApplyYAML(t.Context(), []byte(text)), c.ApplyYAML(t.Context(), podOf(t, objects))); err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		for _, applied := range objects {
			kinds[applied.GetKind()]++
			if applied.GetKind() == "Pod" {
				continue
			}
			returned, err := read(applied)
			if err != nil {
				t.Errorf("%s: %s %s: %v", row.name, applied.GetKind(), applied.GetName(), err)
				continue
			}
			if diff := gocmp.Diff(flatten(applied), flatten(returned)); diff != "" {
				t.Errorf("%s: %s %s (-applied +read back):\n%s", row.name, applied.GetKind(), applied.GetName(), diff)
			}
		}
	}
	t.Logf("applied %v", kinds)
	for _, kind := range []string{
		"Certificate", "ClusterRole", "Deployment", "FlowSchema", "NetworkPolicy", "Pod", "PodMonitor",
		"PriorityLevelConfiguration", "PrometheusRule", "Service", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	} {
		if kinds[kind] == 0 {
			t.Errorf("no %s was applied", kind)
		}
	}
}

// podOf returns the Pod of the Deployment, which no controller creates here.
func podOf(t *testing.T, objects []*unstructured.Unstructured) []byte {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			pod, _, err := unstructured.NestedMap(o.Object, "spec", "template")
			if err != nil {
				t.Fatal(err)
			}
			pod["apiVersion"], pod["kind"] = "v1", "Pod"
			text, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("metadata:\n  name: %s\n  namespace: %s\n", o.GetName(), o.GetNamespace())
			return []byte(strings.Replace(string(text), "metadata:\n", name, 1))
		}
	}
	t.Fatal("no Deployment is rendered")
	return nil
}

// reader returns a function that reads the object of a manifest. A namespaced object must have its namespace.
func (c *cluster) reader() func(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	c.t.Helper()
	client, err := dynamic.NewForConfig(c.AdminConfig())
	c.must(err)
	discovered, err := discovery.NewDiscoveryClientForConfig(c.AdminConfig())
	c.must(err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovered))
	return func(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		kind := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, err
		}
		resource := dynamic.ResourceInterface(client.Resource(mapping.Resource))
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			if o.GetNamespace() == "" {
				return nil, fmt.Errorf("%s has no namespace", kind.Kind)
			}
			resource = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
		}
		return resource.Get(c.t.Context(), o.GetName(), metav1.GetOptions{})
	}
}

// flatten returns an object's leaves by path, without serverFields.
func flatten(object *unstructured.Unstructured) map[string]string {
	leaves := map[string]string{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		_, everywhere := serverFields[path]
		if _, here := serverFields[object.GetKind()+"."+path]; here || everywhere {
			return
		}
		switch v := value.(type) {
		case nil: // API servers of 1.31 return creationTimestamp: null in Pod templates, which means the same as absent
		case map[string]any:
			if len(v) == 0 {
				leaves[path] = "{}"
			}
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(strings.TrimPrefix(path+"."+key, "."), v[key])
			}
		case []any:
			if len(v) == 0 {
				leaves[path] = "[]"
			}
			for i, one := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), one)
			}
		case float64: // encoding/json decodes the numbers of a manifest so
			leaves[path] = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			leaves[path] = fmt.Sprint(v)
		}
	}
	walk("", object.Object)
	return leaves
}
