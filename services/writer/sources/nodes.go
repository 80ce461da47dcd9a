package sources

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// mappingFields are the values of a mapping whose fields are known.
type mappingFields struct {
	line   int
	values map[string]*yaml.Node
}

// valueReader takes a value as it is written, and returns what it should be; empty: it is that.
// It refuses the empty text.
type valueReader func(text string) (want string)

// readMapping reads a node's fields: each of them known, and there once.
func (p *parser) readMapping(n *yaml.Node, want string, known []string) (mappingFields, bool) {
	m := mappingFields{line: n.Line, values: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		p.addf(n.Line, "%s, not %s", want, describeNode(n))
		return m, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch first := m.values[key.Value]; {
		case !slices.Contains(known, key.Value):
			p.addf(key.Line, "%.80q is no field of it%s", key.Value, suggestField(key.Value, known))
		case first != nil:
			p.addf(key.Line, "%s: is there already, at line %d", key.Value, first.Line)
		default:
			m.values[key.Value] = value
		}
	}
	return m, true
}

// scalarField reads a field that has one value and must be there.
func (p *parser) scalarField(m mappingFields, field string, read valueReader) {
	if n := m.values[field]; n != nil {
		p.readScalar(n, field, read)
		return
	}
	p.addf(m.line, "%s: is not set: want %s", field, read(""))
}

// listField reads a field that is a list and must not be empty: of a list that has lost its
// entries nobody can tell whether it meant all or none.
func (p *parser) listField(m mappingFields, field string, read valueReader) {
	switch n := m.values[field]; {
	case n == nil:
		p.addf(m.line, "%s: is not set: want a list, each %s", field, read(""))
	case n.Kind != yaml.SequenceNode:
		p.addf(n.Line, "%s: want a list, each %s, not %s", field, read(""), describeNode(n))
	case len(n.Content) == 0:
		p.addf(n.Line, "%s: is empty: want a list, each %s", field, read(""))
	default:
		for _, element := range n.Content {
			p.readScalar(element, field, read)
		}
	}
}

func (p *parser) readScalar(n *yaml.Node, field string, read valueReader) {
	switch {
	case n.Kind != yaml.ScalarNode:
		p.addf(n.Line, "%s: want %s, not %s", field, read(""), describeNode(n))
	case isEmptyNode(n):
		p.addf(n.Line, "%s: is empty: want %s", field, read(""))
	default:
		if want := read(n.Value); want != "" {
			p.addf(n.Line, "%s: %.80q: want %s", field, n.Value, want)
		}
	}
}

func isEmptyNode(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Value == "" || n.ShortTag() == "!!null")
}

// describeNode is what a node is that is something else than it should be. Aliases are not
// followed: the size of the file bounds what is read of it.
func describeNode(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias: write it out"
	case isEmptyNode(n):
		return "nothing"
	default:
		return fmt.Sprintf("%.80q", n.Value)
	}
}

// suggestField is the known name that a misspelt one is close to, or all of them.
func suggestField(name string, known []string) string {
	if nearest := display.Suggest(name, known, 2); len(nearest) > 0 {
		return fmt.Sprintf(": is it %s?", nearest[0])
	}
	return ": it takes " + strings.Join(known, ", ")
}
