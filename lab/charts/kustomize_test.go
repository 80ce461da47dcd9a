package charts

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var clusterWide = map[string]bool{
	"FlowSchema": true, "PriorityLevelConfiguration": true, "ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
}

// TestKustomizeRendersWhatHelmDoes compares the kustomize bases, and the overlays that show how to change them, with what
// the charts render with the same settings: the expressions of the policies are patched by hand there.
func TestKustomizeRendersWhatHelmDoes(t *testing.T) {
	s := enter(t)
	for _, row := range []struct{ name, dir, chart, namespace, flags string }{
		{"base of the inventory", "inventory", Inventory, "slicefeed", ""},
		{"base of the writer", "writer", Writer, "web", ""},
		{
			"overlay of the inventory", "overlays/inventory", Inventory, "feeds",
			`--set settings.SECURED_SUBNET_CIDR=10.7.0.0/24 --set settings.IONOS_DATACENTER_ID=0e3a5f6c-2f4d-4a7f-9d65-0c2b4f5a7d11 --set settings.IONOS_PRIVATE_LAN_ID=7
--set image.repository=registry.example.org/slicefeed-inventory --set service.type=LoadBalancer --set allowedClients[0].san=spiffe://shop.example/slicefeed/writer`,
		},
		{
			"overlay of the writer", "overlays/writer", Writer, "shop",
			`--set settings.INVENTORY_ADDRESS=inventory.example.com:9443 --set settings.INVENTORY_SAN=spiffe://nodes.example/slicefeed/inventory
--set settings.SECURED_SUBNET_CIDR=10.7.0.0/24 --set image.repository=registry.example.org/slicefeed-writer`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &stage{s.World, t}
			built := s.objects(s.run("kubectl kustomize deploy/manifests/" + row.dir))
			position := map[string]int{}
			for i, object := range built {
				position[object.GetKind()] = i
			}
			if row.chart == Writer && position["ValidatingAdmissionPolicyBinding"] > position["Deployment"] {
				t.Error("the writer comes before its policies")
			}
			if first := built[0]; first.GetKind() != "Namespace" || first.GetName() != row.namespace {
				t.Fatalf("it begins with %s %s, want the namespace %s", first.GetKind(), first.GetName(), row.namespace)
			}
			want := s.objects(
				s.run(
					"helm template --skip-tests " + row.chart + " deploy/" + row.chart + " -n " + row.namespace + " -f deploy/" + row.chart + "/examples/minimal.yaml " + strings.ReplaceAll(
						row.flags,
						"\n",
						" ",
					),
				),
			)
			for _, object := range want { // helm has not installed them
				unstructured.RemoveNestedField(object.Object, "metadata", "labels", "app.kubernetes.io/managed-by")
				unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "labels", "app.kubernetes.io/managed-by")
			}
			for _, object := range built { // kustomize does not know that these have no namespace; API servers ignore theirs
				if clusterWide[object.GetKind()] {
					object.SetNamespace("")
				}
			}
			if diff := gocmp.Diff(sorted(want), sorted(built[1:])); diff != "" {
				t.Errorf("(-helm +kustomize):\n%s", diff)
			}
			side := map[string]string{Inventory: Secured, Writer: Consuming}[row.chart]
			s.run(
				"kubectl --context " + side + " create namespace " + row.namespace + " --dry-run=client -o yaml | kubectl --context " + side + ` apply --server-side -f -
kubectl --context ` + side + " apply --server-side --dry-run=server --validate=strict --force-conflicts -k deploy/manifests/" + row.dir,
			)
		})
	}
}

// sorted are objects as maps, in an order of their own. A patch puts variables first, and their order means nothing.
func sorted(objects []*unstructured.Unstructured) (all []map[string]any) {
	key := func(o *unstructured.Unstructured) string {
		return o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
	}
	for _, o := range slices.SortedFunc(slices.Values(objects), func(a, b *unstructured.Unstructured) int { return cmp.Compare(key(a), key(b)) }) {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			env := c.(map[string]any)["env"].([]any)
			name := func(variable any) string { return variable.(map[string]any)["name"].(string) }
			slices.SortFunc(env, func(a, b any) int { return cmp.Compare(name(a), name(b)) })
			_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
		}
		all = append(all, o.Object)
	}
	return all
}
