package sources

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// fieldsOf are the values of a mapping whose fields are known.
type fieldsOf struct {
	line   int
	values map[string]*yaml.Node
}

// reader takes a value as it is written, and returns what it should be; empty: it is that.
// It refuses the empty text.
type reader func(text string) (want string)

// mapping reads a node's fields: each of them known, and there once.
func (p *parser) mapping(n *yaml.Node, want string, known []string) (fieldsOf, bool) {
	m := fieldsOf{line: n.Line, values: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		p.addf(n.Line, "%s, not %s", want, shape(n))
		return m, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch first := m.values[key.Value]; {
		case !slices.Contains(known, key.Value):
			p.addf(key.Line, "%.80q is no field of it%s", key.Value, meant(key.Value, known))
		case first != nil:
			p.addf(key.Line, "%s: is there already, at line %d", key.Value, first.Line)
		default:
			m.values[key.Value] = value
		}
	}
	return m, true
}

// one reads a field that has one value and must be there.
func (p *parser) one(m fieldsOf, field string, read reader) {
	if n := m.values[field]; n != nil {
		p.scalar(n, field, read)
		return
	}
	p.addf(m.line, "%s: is not set: want %s", field, read(""))
}

// many reads a field that is a list and must not be empty: of a list that has lost its
// entries nobody can tell whether it meant all or none.
func (p *parser) many(m fieldsOf, field string, read reader) {
	switch n := m.values[field]; {
	case n == nil:
		p.addf(m.line, "%s: is not set: want a list, each %s", field, read(""))
	case n.Kind != yaml.SequenceNode:
		p.addf(n.Line, "%s: want a list, each %s, not %s", field, read(""), shape(n))
	case len(n.Content) == 0:
		p.addf(n.Line, "%s: is empty: want a list, each %s", field, read(""))
	default:
		for _, element := range n.Content {
			p.scalar(element, field, read)
		}
	}
}

func (p *parser) scalar(n *yaml.Node, field string, read reader) {
	switch {
	case n.Kind != yaml.ScalarNode:
		p.addf(n.Line, "%s: want %s, not %s", field, read(""), shape(n))
	case isEmpty(n):
		p.addf(n.Line, "%s: is empty: want %s", field, read(""))
	default:
		if want := read(n.Value); want != "" {
			p.addf(n.Line, "%s: %.80q: want %s", field, n.Value, want)
		}
	}
}

func isEmpty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Value == "" || n.ShortTag() == "!!null")
}

// shape is what a node is that is something else than it should be. Aliases are not
// followed: the size of the file bounds what is read of it.
func shape(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias: write it out"
	case isEmpty(n):
		return "nothing"
	default:
		return fmt.Sprintf("%.80q", n.Value)
	}
}

// meant is the known name that a misspelt one is close to, or all of them.
func meant(name string, known []string) string {
	if nearest := display.Suggest(name, known, 2); len(nearest) > 0 {
		return fmt.Sprintf(": is it %s?", nearest[0])
	}
	return ": it takes " + strings.Join(known, ", ")
}
