package sources

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mappingFields is a YAML mapping with known fields.
type mappingFields struct {
	line   int
	values map[string]*yaml.Node
}

// valueReader reads a value. It returns "", or if the value is not valid a description of a valid one. The
// empty text is never valid, so read("") returns the description.
type valueReader func(text string) (want string)

// readMapping reads the fields of a node. Each must be known and unique.
func (p *parser) readMapping(n *yaml.Node, want string, known []string) (mappingFields, bool) {
	m := mappingFields{line: n.Line, values: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		p.addf(n.Line, "%s, got %s", want, describeNode(n))
		return m, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch first := m.values[key.Value]; {
		case !slices.Contains(known, key.Value):
			p.addf(key.Line, "unknown field %.80q; want one of %s", key.Value, strings.Join(known, ", "))
		case first != nil:
			p.addf(key.Line, "%s: duplicate of the field at line %d", key.Value, first.Line)
		default:
			m.values[key.Value] = value
		}
	}
	return m, true
}

// scalarField reads a required field with one value.
func (p *parser) scalarField(m mappingFields, field string, read valueReader) {
	if n := m.values[field]; n != nil {
		p.readScalar(n, field, read)
		return
	}
	p.addf(m.line, "%s is not set: want %s", field, read(""))
}

// listField reads a required list. An empty list is an error, because it could mean all or none.
func (p *parser) listField(m mappingFields, field string, read valueReader) {
	switch n := m.values[field]; {
	case n == nil:
		p.addf(m.line, "%s is not set: want a list, each %s", field, read(""))
	case n.Kind != yaml.SequenceNode:
		p.addf(n.Line, "%s: want a list, each %s, got %s", field, read(""), describeNode(n))
	case len(n.Content) == 0:
		p.addf(n.Line, "%s: empty: want a list, each %s", field, read(""))
	default:
		for _, element := range n.Content {
			p.readScalar(element, field, read)
		}
	}
}

func (p *parser) readScalar(n *yaml.Node, field string, read valueReader) {
	switch {
	case n.Kind != yaml.ScalarNode:
		p.addf(n.Line, "%s: want %s, got %s", field, read(""), describeNode(n))
	case isEmptyNode(n):
		p.addf(n.Line, "%s: empty: want %s", field, read(""))
	default:
		if want := read(n.Value); want != "" {
			p.addf(n.Line, "%s: %.80q: want %s", field, n.Value, want)
		}
	}
}

func isEmptyNode(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Value == "" || n.ShortTag() == "!!null")
}

// describeNode describes a node of the wrong kind. Aliases are not followed, so the size of the file
// limits how much is read.
func describeNode(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias; write the value instead"
	case isEmptyNode(n):
		return "nothing"
	default:
		return fmt.Sprintf("%.80q", n.Value)
	}
}
