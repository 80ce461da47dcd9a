package charts

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// schemas are the files with the schemas of Kubernetes' objects, by version: client-go has what a version's OpenAPI
// says of fields and their types.
func schemas(ctx context.Context) (map[string]string, error) {
	root, err := pair.Root()
	if err != nil {
		return nil, err
	}
	versions, err := os.ReadDir(filepath.Join(root, "lab", "upstream", "schemas"))
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, v := range versions {
		modules, err := download(ctx, filepath.Join("schemas", v.Name()))
		if err != nil {
			return nil, err
		}
		files[v.Name()] = filepath.Join(modules["k8s.io/client-go"], "applyconfigurations", "internal", "internal.go")
	}
	return files, nil
}

// parser reads a schema out of the source in which client-go has it.
func (s *stage) parser(file string) *typed.Parser {
	s.t.Helper()
	source, err := os.ReadFile(file)
	s.must(err)
	_, text, found := strings.Cut(string(source), "typed.YAMLObject(`")
	text, _, ended := strings.Cut(text, "`)")
	if !found || !ended {
		s.t.Fatalf("%s has no schema where one was", file)
	}
	parser, err := typed.NewParser(typed.YAMLObject(text))
	s.must(err)
	return parser
}

// schemaGroups are the names that schemas have for the groups of our objects; those of Kubernetes alone.
var schemaGroups = map[string]string{
	"": "core", "apps": "apps", "policy": "policy", "networking.k8s.io": "networking", "rbac.authorization.k8s.io": "rbac",
	"admissionregistration.k8s.io": "admissionregistration", "flowcontrol.apiserver.k8s.io": "flowcontrol",
}

// judge parses an object by a schema. An unknown field, or one of another type, is an error.
func judge(parser *typed.Parser, o *unstructured.Unstructured) (known bool, err error) {
	kind := o.GroupVersionKind()
	group, ours := schemaGroups[kind.Group]
	if !ours {
		return false, nil
	}
	name := fmt.Sprintf("io.k8s.api.%s.%s.%s", group, kind.Version, kind.Kind)
	if !slices.Contains(typeNames(parser), name) {
		return true, fmt.Errorf("there is no %s", name)
	}
	_, err = parser.Type(name).FromUnstructured(o.Object)
	return true, err
}

func typeNames(parser *typed.Parser) (names []string) {
	for _, t := range parser.Schema.Types {
		names = append(names, t.Name)
	}
	return names
}

// TestEverySupportedKubernetesHasTheFieldsThatWeUse holds what both charts render at most, and each example, against
// the schemas of all versions of Kubernetes from the oldest that is supported. API servers of the oldest and the newest
// judge the same in other tests.
func TestEverySupportedKubernetesHasTheFieldsThatWeUse(t *testing.T) {
	s := enter(t)
	files, err := schemas(s.ctx())
	s.must(err)
	var objects []*unstructured.Unstructured
	for _, chart := range []string{Inventory, Writer} {
		values, err := filepath.Glob(filepath.Join(s.root, "deploy", chart, "examples", "*.yaml"))
		s.must(err)
		for _, file := range append(values, filepath.Join(s.root, "deploy", chart, "tests", "everything.yaml")) {
			objects = append(objects, s.objects(s.run(fmt.Sprintf("helm template x deploy/%s -n shop -f %s", chart, file)))...)
		}
	}
	oldest := ""
	for _, version := range slices.Sorted(maps.Keys(files)) {
		parser, kinds := s.parser(files[version]), map[string]int{}
		for _, o := range objects {
			known, err := judge(parser, o)
			if err != nil {
				t.Errorf("Kubernetes %s: %s %s: %v", version, o.GetKind(), o.GetName(), err)
			}
			if known {
				kinds[o.GetKind()]++
			}
		}
		t.Logf("Kubernetes %s: %v", version, kinds)
		if len(kinds) < 15 {
			t.Errorf("Kubernetes %s: only %d kinds were judged", version, len(kinds))
		}
		if oldest == "" {
			oldest = version
		}
	}
	chart, err := os.ReadFile(filepath.Join(s.root, "deploy", Writer, "Chart.yaml"))
	s.must(err)
	if !strings.Contains(string(chart), `kubeVersion: ">=`+oldest+`.0-0"`) || len(files) < 6 {
		t.Errorf("%d versions from %s on were judged; the chart supports others", len(files), oldest)
	}
	wrong := objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })].DeepCopy()
	s.must(unstructured.SetNestedField(wrong.Object, true, "spec", "template", "spec", "hostNetwrk"))
	if _, err := judge(s.parser(files[oldest]), wrong); err == nil {
		t.Error("a field that there is not was accepted")
	}
}
