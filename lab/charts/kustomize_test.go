package charts

import (
	"cmp"
	"os"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

// clusterWide are kinds whose objects kustomize gives a namespace. API servers ignore it.
var clusterWide = []string{"FlowSchema", "PriorityLevelConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

// TestKustomizeRendersWhatHelmDoes compares the overlays, which patch the expressions of the policies, with what the charts
// render with the same settings. The overlays include the bases.
func TestKustomizeRendersWhatHelmDoes(t *testing.T) {
	programs, err := controlplane.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	render := func(command string) []*unstructured.Unstructured {
		text, err := Run(t.Context(), command)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return objects
	}
	for _, row := range []struct{ overlay, chart, namespace, flags string }{
		{"inventory", inventory, "feeds", `--set settings.SECURED_SUBNET_CIDR=10.7.0.0/24,settings.IONOS_PRIVATE_LAN_ID=7 \
			--set settings.IONOS_DATACENTER_ID=0e3a5f6c-2f4d-4a7f-9d65-0c2b4f5a7d11,service.type=LoadBalancer \
			--set image.repository=registry.example.org/slicefeed-inventory,allowedClients[0].san=spiffe://shop.example/slicefeed/writer`},
		{"writer", writer, "shop", `--set settings.INVENTORY_ADDRESS=inventory.example.com:9443,settings.SECURED_SUBNET_CIDR=10.7.0.0/24 \
			--set settings.INVENTORY_SAN=spiffe://nodes.example/slicefeed/inventory,image.repository=registry.example.org/slicefeed-writer`},
	} {
		built := render(programs.Kubectl + " kustomize deploy/manifests/overlays/" + row.overlay)
		if first := built[0]; first.GetKind() != "Namespace" || first.GetName() != row.namespace {
			t.Errorf("%s begins with %s %s, want the namespace %s", row.overlay, first.GetKind(), first.GetName(), row.namespace)
		}
		position := func(kind string) int {
			return slices.IndexFunc(built, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
		}
		if position("ValidatingAdmissionPolicyBinding") > position("Deployment") {
			t.Errorf("%s: the Deployment comes before the policies", row.overlay)
		}
		for _, o := range built {
			if slices.Contains(clusterWide, o.GetKind()) {
				o.SetNamespace("")
			}
		}
		want := render("helm template --skip-tests " + row.chart + " deploy/" + row.chart + " -n " + row.namespace +
			" -f deploy/" + row.chart + "/examples/minimal.yaml " + row.flags)
		for _, o := range want { // kustomize manages these, not Helm
			unstructured.RemoveNestedField(o.Object, "metadata", "labels", "app.kubernetes.io/managed-by")
			unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "labels", "app.kubernetes.io/managed-by")
		}
		if diff := gocmp.Diff(sortObjects(want), sortObjects(built[1:])); diff != "" {
			t.Errorf("%s (-helm +kustomize):\n%s", row.overlay, diff)
		}
	}
}

// TestAnotherReleaseHasObjectsOfItsOwn compares what releases of one name in different namespaces have for the whole cluster.
func TestAnotherReleaseHasObjectsOfItsOwn(t *testing.T) {
	var seen []string
	for namespace, chart := range map[string]string{
		"shop": writer, "till": writer, "feeds": inventory, "nodes": inventory,
	} {
		flags := ""
		if chart == writer {
			flags = " --set settings.WATCH_NAMESPACES=*,policy.namespaces={shop}"
		}
		text, err := Run(t.Context(),
			"helm template slicefeed -n "+namespace+" -f deploy/"+chart+"/examples/minimal.yaml deploy/"+chart+flags)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if key := o.GetKind() + " " + o.GetName(); o.GetNamespace() == "" && slices.Contains(seen, key) {
				t.Errorf("two releases have %s", key)
			} else if o.GetNamespace() == "" {
				seen = append(seen, key)
			}
		}
	}
	if len(seen) != 2*(10+2) {
		t.Errorf("cluster-wide objects: %q", seen)
	}
}

// sortObjects returns the content of objects, and of their lists of environment variables, in a stable order.
func sortObjects(objects []*unstructured.Unstructured) (all []map[string]any) {
	key := func(o *unstructured.Unstructured) string {
		return o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
	}
	for _, o := range slices.SortedFunc(slices.Values(objects), func(a, b *unstructured.Unstructured) int { return cmp.Compare(key(a), key(b)) }) {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			name := func(variable any) string { return variable.(map[string]any)["name"].(string) }
			slices.SortFunc(c.(map[string]any)["env"].([]any), func(a, b any) int { return cmp.Compare(name(a), name(b)) })
			_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
		}
		all = append(all, o.Object)
	}
	return all
}
