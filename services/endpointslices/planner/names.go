package planner

import (
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// maxNameLength is the API server's limit.
const maxNameLength = 253

// nameAllocator allocates names that no slice of the namespace has. They depend only on the plan's
// input: if there are two leaders for a moment, both create the same name, and the API server accepts
// only one.
type nameAllocator struct{ taken map[string]struct{} }

// newNameAllocator returns an allocator that avoids the names of all given slices, owned and foreign.
func (d Desired) newNameAllocator(existing []*discoveryv1.EndpointSlice) *nameAllocator {
	n := &nameAllocator{taken: make(map[string]struct{}, len(existing))}
	for _, slice := range existing {
		if slice.Namespace == d.Namespace {
			n.taken[slice.Name] = struct{}{}
		}
	}
	return n
}

// nextName allocates the configured name for the first slice of the first family, then
// <name>[-<group>][-ipv6], then these with -2, -3 and so on.
func (n *nameAllocator) nextName(d Desired, g *sliceGroup) string {
	if g.family == d.Families[0] && n.isFree(d.FirstName) {
		return n.reserve(d.FirstName)
	}
	suffix := ""
	if g.name != d.DefaultGroup {
		suffix += "-" + toNamePart(g.name)
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

// joinName appends the suffix, and shortens the name if the result would be too long.
func joinName(name, suffix string) string {
	if excess := len(name) + len(suffix) - maxNameLength; excess > 0 {
		name = strings.TrimRight(name[:max(len(name)-excess, 1)], "-.")
	}
	return name + suffix
}

// toNamePart converts a label value to a part of a name: label values may have capitals and underscores.
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
