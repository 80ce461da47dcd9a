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

	"github.com/slicefeed/slicefeed/lab/charts"
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
		modules, err := charts.Download(ctx, filepath.Join("schemas", v.Name()))
		if err != nil {
			return nil, err
		}
		files[v.Name()] = filepath.Join(modules["k8s.io/client-go"], "applyconfigurations", "internal", "internal.go")
	}
	return files, nil
}

// readSchema reads the schema that client-go has in a source file.
func readSchema(file string) (*typed.Parser, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, text, _ := strings.Cut(string(source), "typed.YAMLObject(`")
	text, _, found := strings.Cut(text, "`)")
	if !found {
		return nil, fmt.Errorf("%s has no schema", file)
	}
	return typed.NewParser(typed.YAMLObject(text))
}

// schemaGroups are the names that schemas have for the groups of our objects; those of Kubernetes alone.
var schemaGroups = map[string]string{
	"": "core", "apps": "apps", "policy": "policy", "networking.k8s.io": "networking", "rbac.authorization.k8s.io": "rbac",
	"admissionregistration.k8s.io": "admissionregistration", "flowcontrol.apiserver.k8s.io": "flowcontrol",
}

// check parses an object by a schema. An unknown field, or one of another type, is an error.
func check(parser *typed.Parser, o *unstructured.Unstructured) (known bool, err error) {
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

// TestEverySupportedKubernetesHasTheFieldsThatChartsUse checks everything that both charts can render against the schemas of all
// versions of Kubernetes from the oldest supported one. API servers of the oldest and the newest check the same in lab/charts.
func TestEverySupportedKubernetesHasTheFieldsThatChartsUse(t *testing.T) {
	if !verifies {
		t.Skip("part of make verify")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	files, err := schemas(t.Context())
	must(err)
	var objects []*unstructured.Unstructured
	for _, chart := range []string{inventory, writer} {
		text, err := charts.Run(t.Context(), fmt.Sprintf(
			"for values in deploy/%[1]s/{examples/*,tests/everything}.yaml; do helm template x deploy/%[1]s -n shop -f $values; done",
			chart,
		))
		must(err)
		some, err := charts.Parse(text)
		must(err)
		objects = append(objects, some...)
	}
	versions := slices.Sorted(maps.Keys(files))
	for _, version := range versions {
		parser, err := readSchema(files[version])
		must(err)
		kinds := map[string]int{}
		for _, o := range objects {
			known, err := check(parser, o)
			if err != nil {
				t.Errorf("Kubernetes %s: %s %s: %v", version, o.GetKind(), o.GetName(), err)
			}
			if known {
				kinds[o.GetKind()]++
			}
		}
		if len(kinds) < 15 {
			t.Errorf("Kubernetes %s: only %v were checked", version, kinds)
		}
	}
	chart, err := charts.Run(t.Context(), "cat deploy/slicefeed-writer/Chart.yaml")
	must(err)
	if !strings.Contains(chart, `kubeVersion: ">=`+versions[0]+`.0-0"`) || len(versions) < 6 {
		t.Errorf("versions %s were checked; the chart supports others", versions)
	}
	wrong := objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })].DeepCopy()
	must(unstructured.SetNestedField(wrong.Object, true, "spec", "template", "spec", "hostNetwrk"))
	parser, err := readSchema(files[versions[0]])
	must(err)
	if _, err := check(parser, wrong); err == nil {
		t.Error("an unknown field was accepted")
	}
}
