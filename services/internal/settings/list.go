package settings

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlValue is the value of a key: one text, or a list of them.
type yamlValue struct {
	line  int
	list  bool
	texts []string
}

// UnmarshalYAML reads a value. It is not called for null, which therefore has no text.
func (v *yamlValue) UnmarshalYAML(n *yaml.Node) error {
	v.line, v.list, v.texts = n.Line, n.Kind == yaml.SequenceNode, make([]string, 1)
	if v.list {
		return n.Decode(&v.texts)
	}
	return n.Decode(&v.texts[0])
}

// LoadList reads a YAML document that has one list of mappings under a key, and returns a T for each. The tag flag of a
// field is its key, other tags are those of a setting. The first field identifies an element. Unknown keys are problems,
// because they may be misspelled restrictions, and so are empty lists, which could mean all or none. The error lists all
// problems.
func LoadList[T any](document []byte, key string) ([]T, error) {
	var lists map[string][]map[string]yamlValue
	d := yaml.NewDecoder(bytes.NewReader(document))
	err := d.Decode(&lists)
	var problems []error
	failed, isTyped := errors.AsType[*yaml.TypeError](err)
	switch {
	case isTyped: // the rest was decoded
		for _, text := range failed.Errors {
			what, _, _ := strings.Cut(text, " into ")
			problems = append(problems, errors.New(what))
		}
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case err == nil && !errors.Is(d.Decode(new(yaml.Node)), io.EOF):
		problems = append(problems, errors.New("more than one YAML document"))
	}
	for name := range lists {
		if name != key {
			problems = append(problems, fmt.Errorf("unknown field %.80q; want %s", name, key))
		}
	}
	if len(lists[key]) == 0 && !isTyped {
		problems = append(problems, fmt.Errorf("no %s: want %q and a list of at least one", key, key+":"))
	}
	all, seen := make([]T, len(lists[key])), map[string]int{}
	for i, values := range lists[key] {
		fields := List(&all[i])
		id := strings.Join(values[fields[0].Flag].texts, "")
		element := fmt.Sprintf("%s %d (%.80q)", strings.TrimSuffix(key, "s"), i+1, id)
		if first, exists := seen[id]; exists && id != "" {
			problems = append(problems, fmt.Errorf("%s: duplicate %s, as of %d", element, fields[0].Flag, first))
		} else {
			seen[id] = i + 1
		}
		for _, problem := range loadElement(fields, values) {
			problems = append(problems, fmt.Errorf("%s: %w", element, problem))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return all, nil
}

// loadElement sets fields, and returns the problems of all values. An empty text is not set, as in the environment.
func loadElement(fields []Field, values map[string]yamlValue) (problems []error) {
	var known []string
	for i := range fields {
		f := &fields[i]
		v, isSet := values[f.Flag]
		known = append(known, f.Flag)
		delete(values, f.Flag)
		addf := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("line %d: "+f.Flag+": "+format, append([]any{v.line}, args...)...))
		}
		switch {
		case !f.IsList() && !v.list && strings.Join(v.texts, "") == "", !isSet:
			if f.Required() {
				problems = append(problems, fmt.Errorf("%s is not set: want %s", f.Flag, f.Expected()))
			}
		case f.IsList() && (!v.list || len(v.texts) == 0):
			addf("want a list, each %s", f.Expected())
		case v.list && !f.IsList():
			addf("want %s, not a list", f.Expected())
		default:
			for _, text := range v.texts {
				value, want := f.parseElement(f.Type(), text)
				if want = cmp.Or(want, Check(f.placeholder, text)); want != "" || text == "" {
					addf("%.80q: want %s", text, cmp.Or(want, f.Expected()))
				}
				if f.IsList() {
					value = reflect.Append(f.value, value)
				}
				f.value.Set(value)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		problems = append(
			problems,
			fmt.Errorf("line %d: unknown field %.80q; want one of %s", values[key].line, key, strings.Join(known, ", ")),
		)
	}
	return problems
}
