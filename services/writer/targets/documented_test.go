package targets

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/writer/sources"
)

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDocumentedAnnotationsMatchCode(t *testing.T) {
	err := testkit.CheckSection("../../../docs/reference/annotations.md", "annotations", func(string) string {
		var want strings.Builder
		want.WriteString("| annotation | takes | unset | meaning |\n|---|---|---|---|\n")
		for _, a := range knownAnnotations {
			fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", a.name, a.accepts, a.defaultText, a.description)
		}
		return want.String()
	})
	if err != nil {
		t.Error(err)
	}
}

// allReasons returns the values of all Reason constants.
func allReasons(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "rejection.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "Reason") {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil || "Reason"+value != spec.Names[0].Name {
				t.Errorf("%s is %q", spec.Names[0].Name, value)
			}
			all = append(all, value)
		}
		return true
	})
	return all
}

func TestEveryReasonIsTested(t *testing.T) {
	tested := []string{
		"ServiceNotFound",
		"LegacyEndpoints",
		"OwnedByOtherWriter",
		"OrphanedSlices",
		"LabelRemoved",
		"ClassChanged",
	} // need more than a Service
	for _, tc := range importRejections {
		tested = append(tested, tc.reason)
	}
	for _, tc := range rejections {
		tested = append(tested, tc.reason)
	}
	for _, reason := range allReasons(t) {
		if !slices.Contains(tested, reason) {
			t.Errorf("%s is not tested", reason)
		}
	}
}

func TestDocumentedServiceIsAccepted(t *testing.T) {
	cfg := newConfig()
	cfg.Sources = []sources.Source{{Name: "blue", Ports: anyPort}, {Name: "green", Ports: anyPort}}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readPage(t, "use/services.md"), -1)
	if len(blocks) == 0 {
		t.Fatal("there is no YAML")
	}
	for _, block := range blocks {
		var svc corev1.Service
		if err := yaml.NewYAMLOrJSONDecoder(strings.NewReader(block[1]), 4096).Decode(&svc); err != nil {
			t.Fatal(err)
		}
		resolution := resolve(cfg, &svc)
		if resolution.State != Managed || resolution.Warning != nil ||
			resolution.ProbePort != 30080 ||
			resolution.FirstName != "shop-slicefeed" {
			t.Errorf("%+v: rejected %v", resolution.Target, resolution.Rejection)
		}
	}
}

// An annotation has the bounds of the setting with the same meaning. Those are struct tags, so only a
// test can compare them.
func TestAnnotationBoundsMatchSettings(t *testing.T) {
	code, err := os.ReadFile("../app/config.go")
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string][2]string{
		"health-check-interval": {formatDuration(minInterval), formatDuration(maxInterval)},
		"health-check-timeout":  {formatDuration(minTimeout), formatDuration(maxTimeout)},
	} {
		tag := regexp.MustCompile("flag:\"" + flag + "\"[^`]*min:\"([^\"]*)\" +max:\"([^\"]*)\"").FindStringSubmatch(string(code))
		if tag == nil || [2]string(tag[1:]) != want {
			t.Errorf("%s: the setting has %v, the annotation %v", flag, tag, want)
		}
	}
}
