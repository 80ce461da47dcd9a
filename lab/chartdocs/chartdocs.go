// Package chartdocs reads what a chart says of its values, so that its README, its schema and
// its values.yaml can be held to say the same. It refuses a value without a comment.
package chartdocs

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is one that can be set: neither a map of the chart's own, nor what is in a list or a map that a
// user fills. Such a map with a default is written on one line, in braces.
type Value struct {
	Path    string // networkPolicy.enabled
	Default string // as JSON
	Meaning string // the comment above it
}

// Values are those of a values.yaml, in its order.
func Values(text []byte) ([]Value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	if len(document.Content) != 1 {
		return nil, errors.New("read the values: they are empty")
	}
	return collect("", document.Content[0])
}

func collect(prefix string, mapping *yaml.Node) (all []Value, err error) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 && len(value.Content) > 0 {
			below, err := collect(path+".", value)
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
		if err := value.Decode(&plain); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		fallback, err := json.Marshal(plain)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, Value{Path: path, Default: string(fallback), Meaning: meaning})
	}
	return all, nil
}

// Table is a Markdown table of values.
func Table(values []Value) string {
	var b strings.Builder
	b.WriteString("| value | default | meaning |\n|---|---|---|\n")
	for _, v := range values {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.Path, v.Default, strings.ReplaceAll(v.Meaning, "|", `\|`))
	}
	return b.String()
}

// Described are the paths that a values.schema.json describes by properties, in no order: those
// below settings excepted, which another test holds to the code.
func Described(schema []byte) ([]string, error) {
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
