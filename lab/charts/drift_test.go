package charts

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

// ofTheServer are the members that the API server, or a controller, chooses for each cluster or object anew: no
// manifest can spell them out.
var ofTheServer = map[string]string{
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
	"Deployment.metadata.annotations":              "kube-controller-manager's note of the revision",
}

// TestWhatIsAppliedIsReadBackAsItWas compares every object of both charts with what an API server has made of it. Tools
// such as Argo CD report what differs as drift, for ever, since no sync removes it.
func TestWhatIsAppliedIsReadBackAsItWas(t *testing.T) {
	s := enter(t)
	files, err := Definitions(s.ctx())
	s.must(err)
	for _, plane := range []*controlplane.ControlPlane{s.Secured, s.Consuming} {
		s.must(plane.Apply(s.ctx(), files...))
	}
	kinds := map[string]int{}
	for _, row := range []struct{ name, chart, values string }{
		{"inventory-drift", Inventory, "-f deploy/slicefeed-inventory/tests/everything.yaml"},
		{"inventory-drift-service", Inventory, "-f deploy/slicefeed-inventory/examples/minimal.yaml --set settings.SOURCE_KIND=service --set settings.SOURCE_SERVICE=shop/web --set service.type=NodePort --set service.nodePort=30444"},
		{"writer-drift", Writer, "-f deploy/slicefeed-writer/tests/everything.yaml"},
		{"writer-drift-everywhere", Writer, "-f deploy/slicefeed-writer/examples/minimal.yaml --set settings.WATCH_NAMESPACES='*' --set policy.namespaces='{shop}'"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &stage{s.World, t}
			plane := s.Secured
			if row.chart == Writer {
				plane = s.Consuming
			}
			out := s.run(fmt.Sprintf("helm template --skip-tests %s deploy/%s -n %[1]s %[3]s", row.name, row.chart, row.values))
			out = replicas.ReplaceAllString(out, "  replicas: 0") // it is compared, not run
			for _, found := range append(namespace.FindAllStringSubmatch(out, -1), []string{"", row.name}) {
				s.must(plane.ApplyYAML(s.ctx(), []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+found[1]+"}}")))
			}
			s.must(plane.ApplyYAML(s.ctx(), []byte(out)))
			for _, applied := range s.objects(out) {
				kinds[applied.GetKind()]++
				if diff := cmp.Diff(flat(applied), flat(s.readBack(plane, applied, row.name))); diff != "" {
					t.Errorf("%s %s (-applied +read back):\n%s", applied.GetKind(), applied.GetName(), diff)
				}
			}
		})
	}
	t.Logf("compared %v", kinds)
	for _, kind := range []string{"Deployment", "Service", "NetworkPolicy", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "FlowSchema", "PriorityLevelConfiguration", "ClusterRole", "Certificate", "PodMonitor"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s was compared", kind)
		}
	}
}

func (s *stage) objects(text string) (all []*unstructured.Unstructured) {
	s.t.Helper()
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		s.must(err)
		raw, err := yaml.YAMLToJSON(document)
		s.must(err)
		one := &unstructured.Unstructured{}
		if string(raw) == "null" {
			continue
		}
		s.must(json.Unmarshal(raw, &one.Object))
		all = append(all, one)
	}
}

func (s *stage) readBack(plane *controlplane.ControlPlane, applied *unstructured.Unstructured, release string) *unstructured.Unstructured {
	s.t.Helper()
	client, err := dynamic.NewForConfig(plane.AdminConfig())
	s.must(err)
	side := Secured
	if plane == s.Consuming {
		side = Consuming
	}
	groups, err := restmapper.GetAPIGroupResources(s.Client(side).Discovery())
	s.must(err)
	kind := applied.GroupVersionKind()
	mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
	s.must(err)
	where := dynamic.ResourceInterface(client.Resource(mapping.Resource))
	if mapping.Scope.Name() == "namespace" {
		in := applied.GetNamespace()
		if in == "" {
			s.t.Errorf("%s %s of %s says no namespace", kind.Kind, applied.GetName(), release)
		}
		where = client.Resource(mapping.Resource).Namespace(in)
	}
	found, err := where.Get(s.ctx(), applied.GetName(), metav1.GetOptions{})
	s.must(err)
	return found
}

// flat is an object as its leaves, without what is the server's.
func flat(object *unstructured.Unstructured) map[string]string {
	leaves := map[string]string{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		_, everywhere := ofTheServer[path]
		if _, here := ofTheServer[object.GetKind()+"."+path]; here || everywhere {
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
		case float64: // of what was applied: encoding/json knows no other numbers
			leaves[path] = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			leaves[path] = fmt.Sprint(v)
		}
	}
	walk("", object.Object)
	return leaves
}
