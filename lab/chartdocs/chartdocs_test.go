package chartdocs

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the tables into the charts' READMEs")

const begin, end = "<!-- values -->\n", "<!-- /values -->"

var charts = []string{"slicefeed-inventory", "slicefeed-writer"}

func read(t *testing.T, chart, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy", chart, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func values(t *testing.T, chart string) []Value {
	t.Helper()
	all, err := Values([]byte(read(t, chart, "values.yaml")))
	if err != nil {
		t.Fatalf("values.yaml of %s: %v", chart, err)
	}
	return all
}

func TestTheREADMEsHaveTheValues(t *testing.T) {
	for _, chart := range charts {
		text := read(t, chart, "README.md")
		before, rest, opened := strings.Cut(text, begin)
		there, after, closed := strings.Cut(rest, end)
		if !opened || !closed {
			t.Fatalf("README.md of %s lacks the lines %q and %q", chart, begin, end)
		}
		want := "\n" + Table(values(t, chart)) + "\n"
		switch {
		case there == want:
		case *update:
			err := os.WriteFile(filepath.Join("../../deploy", chart, "README.md"), []byte(before+begin+want+end+after), 0o644)
			if err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("README.md of %s is not as values.yaml is; run: make generate\n%s", chart, cmp.Diff(there, want))
		}
	}
}

func TestTheREADMEsShowTheExamples(t *testing.T) {
	for _, chart := range charts {
		examples, err := filepath.Glob(filepath.Join("../../deploy", chart, "examples", "*.yaml"))
		if err != nil || len(examples) == 0 {
			t.Fatalf("%s has no examples (%v)", chart, err)
		}
		for _, example := range examples {
			name := "examples/" + filepath.Base(example)
			if !strings.Contains(read(t, chart, "README.md"), "```yaml\n# "+name+"\n"+read(t, chart, name)+"```\n") {
				t.Errorf("README.md of %s does not show %s as it is", chart, name)
			}
		}
	}
}

func TestTheSchemasKnowTheValuesAndNoOthers(t *testing.T) {
	for _, chart := range charts {
		described, err := Described([]byte(read(t, chart, "values.schema.json")))
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{}
		for _, path := range described {
			known[path] = true
		}
		var settable []string
		for _, v := range values(t, chart) {
			settable = append(settable, v.Path)
			if parent := v.Path[:max(0, strings.LastIndex(v.Path, "."))]; known[parent] {
				settable[len(settable)-1] = parent // a user's own map, which has defaults here
			}
		}
		// What Helm itself, or the chart above, puts among a subchart's values: it has no default here.
		described = slices.DeleteFunc(described, func(path string) bool { return path == "global" || path == "enabled" })
		slices.Sort(described)
		slices.Sort(settable)
		if diff := cmp.Diff(slices.Compact(described), slices.Compact(settable)); diff != "" {
			t.Errorf("%s (-values.schema.json +values.yaml):\n%s", chart, diff)
		}
	}
}

func TestAValueWithoutACommentIsRefused(t *testing.T) {
	_, err := Values([]byte("# of both\nimage:\n  repository: here\n"))
	if err == nil || !strings.Contains(err.Error(), "image.repository has no comment") {
		t.Errorf("got %v", err)
	}
}

func TestAMapInBracesIsOneValue(t *testing.T) {
	all, err := Values([]byte("# How Pods are replaced.\nstrategy: {type: RollingUpdate, most: {surge: 1}}\n"))
	want := []Value{{Path: "strategy", Default: `{"most":{"surge":1},"type":"RollingUpdate"}`, Meaning: "How Pods are replaced."}}
	if diff := cmp.Diff(want, all); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}
