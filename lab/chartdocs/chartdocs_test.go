// Package chartdocs checks that a chart's README, its schema and its values.yaml have the same values, each with a comment.
package chartdocs

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
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

func values(t *testing.T, chart string) []value {
	t.Helper()
	all, err := readValues([]byte(read(t, chart, "values.yaml")))
	if err != nil {
		t.Fatalf("values.yaml of %s: %v", chart, err)
	}
	return all
}

func TestREADMEsHaveTheValues(t *testing.T) {
	for _, chart := range charts {
		text := read(t, chart, "README.md")
		before, rest, opened := strings.Cut(text, begin)
		there, after, closed := strings.Cut(rest, end)
		if !opened || !closed {
			t.Fatalf("README.md of %s lacks the lines %q and %q", chart, begin, end)
		}
		want := "\n" + table(values(t, chart)) + "\n"
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

func TestREADMEsShowTheExamples(t *testing.T) {
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

func TestSchemasHaveTheValuesAndNoOthers(t *testing.T) {
	for _, chart := range charts {
		described, err := described([]byte(read(t, chart, "values.schema.json")))
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
				settable[len(settable)-1] = parent // a map of the user's, which has defaults here
			}
		}
		// Helm, or an umbrella chart, adds these to the values of a dependency.
		described = slices.DeleteFunc(described, func(path string) bool { return path == "global" || path == "enabled" })
		slices.Sort(described)
		slices.Sort(settable)
		if diff := cmp.Diff(slices.Compact(described), slices.Compact(settable)); diff != "" {
			t.Errorf("%s (-values.schema.json +values.yaml):\n%s", chart, diff)
		}
	}
}

// value is one that can be set: neither a map of the chart's own, nor an element of a list or a map that a user fills. Such a map with
// a default is written on one line, in braces.
type value struct {
	Path    string // networkPolicy.enabled
	Default string // as JSON
	Meaning string // the comment above it
}

// readValues returns those of a values.yaml, in its order.
func readValues(text []byte) ([]value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	if len(document.Content) != 1 {
		return nil, errors.New("read the values: they are empty")
	}
	return collect("", document.Content[0])
}

func collect(prefix string, mapping *yaml.Node) (all []value, err error) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		if node.Kind == yaml.MappingNode && node.Style&yaml.FlowStyle == 0 && len(node.Content) > 0 {
			below, err := collect(path+".", node)
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
			continue
		}
		meaning := strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", "")), " ")
		if meaning == "" {
			return nil, fmt.Errorf("%s has no comment that says what it is for", path)
		}
		var plain any
		if err := node.Decode(&plain); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		fallback, err := json.Marshal(plain)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, value{Path: path, Default: string(fallback), Meaning: meaning})
	}
	return all, nil
}

// table returns a Markdown table of values.
func table(values []value) string {
	var b strings.Builder
	b.WriteString("| value | default | meaning |\n|---|---|---|\n")
	for _, v := range values {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.Path, v.Default, strings.ReplaceAll(v.Meaning, "|", `\|`))
	}
	return b.String()
}

// described returns the paths that a values.schema.json describes by properties, except those below settings, which another test
// compares with the code.
func described(schema []byte) ([]string, error) {
	var top object
	if err := json.Unmarshal(schema, &top); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	return top.paths(""), nil
}

type object struct {
	Properties map[string]object `json:"properties"`
}

func (o object) paths(prefix string) (all []string) {
	for name, p := range o.Properties {
		if path := prefix + name; len(p.Properties) == 0 || path == "settings" {
			all = append(all, path)
		} else {
			all = append(all, p.paths(path+".")...)
		}
	}
	return all
}
