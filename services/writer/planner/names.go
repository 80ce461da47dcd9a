package planner

import (
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// maxNameLength is the longest name that the API server takes.
const maxNameLength = 253

// nameAllocator hands out names that nobody in the namespace has. They depend on nothing but the
// plan's input: two leaders for a moment want the same name, and the API server lets one.
type nameAllocator struct{ taken map[string]struct{} }

// newNameAllocator knows every slice of the namespace that it is shown, also those not ours.
func (d Desired) newNameAllocator(existing []*discoveryv1.EndpointSlice) *nameAllocator {
	n := &nameAllocator{taken: make(map[string]struct{}, len(existing))}
	for _, slice := range existing {
		if slice.Namespace == d.Namespace {
			n.taken[slice.Name] = struct{}{}
		}
	}
	return n
}

// nextName is the configured name for the first slice of the first family, then
// <name>[-<source>][-ipv6], then these with -2, -3 and so on.
func (n *nameAllocator) nextName(d Desired, g *sliceGroup) string {
	if g.family == d.Families[0] && n.isFree(d.FirstName) {
		return n.reserve(d.FirstName)
	}
	suffix := ""
	if g.source != DefaultSource {
		suffix += "-" + toNamePart(g.source)
	}
	if g.family != d.Families[0] {
		suffix += "-" + strings.ToLower(string(g.family))
	}
	if name := joinName(d.FirstName, suffix); n.isFree(name) {
		return n.reserve(name)
	}
	for i := 2; ; i++ {
		if name := joinName(d.FirstName, suffix+"-"+strconv.Itoa(i)); n.isFree(name) {
			return n.reserve(name)
		}
	}
}

func (n *nameAllocator) isFree(name string) bool {
	_, taken := n.taken[name]
	return !taken && len(name) <= maxNameLength
}

func (n *nameAllocator) reserve(name string) string {
	n.taken[name] = struct{}{}
	return name
}

// joinName shortens the name, never the suffix, to what the API server takes.
func joinName(name, suffix string) string {
	if excess := len(name) + len(suffix) - maxNameLength; excess > 0 {
		name = strings.TrimRight(name[:max(len(name)-excess, 1)], "-.")
	}
	return name + suffix
}

// toNamePart makes a label's value fit into a name: label values may have capitals and underscores.
func toNamePart(value string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '-'
		}
	}, value), "-")
}
