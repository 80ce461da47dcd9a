package planner

import (
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// maxName is the longest name that the API server takes.
const maxName = 253

// names hands out names that nobody in the namespace has. They depend on nothing but the
// plan's input: two leaders for a moment want the same name, and the API server lets one.
type names struct{ taken map[string]struct{} }

// names knows every slice of the namespace that it is shown, also those not ours.
func (d Desired) names(existing []*discoveryv1.EndpointSlice) *names {
	n := &names{taken: make(map[string]struct{}, len(existing))}
	for _, slice := range existing {
		if slice.Namespace == d.Namespace {
			n.taken[slice.Name] = struct{}{}
		}
	}
	return n
}

// next is the configured name for the first slice of the first family, then
// <name>[-<source>][-ipv6], then these with -2, -3 and so on.
func (n *names) next(d Desired, g *group) string {
	if g.family == d.Families[0] && n.free(d.FirstName) {
		return n.take(d.FirstName)
	}
	suffix := ""
	if g.source != DefaultSource {
		suffix += "-" + subdomain(g.source)
	}
	if g.family != d.Families[0] {
		suffix += "-" + strings.ToLower(string(g.family))
	}
	if name := join(d.FirstName, suffix); n.free(name) {
		return n.take(name)
	}
	for i := 2; ; i++ {
		if name := join(d.FirstName, suffix+"-"+strconv.Itoa(i)); n.free(name) {
			return n.take(name)
		}
	}
}

func (n *names) free(name string) bool {
	_, taken := n.taken[name]
	return !taken && len(name) <= maxName
}

func (n *names) take(name string) string {
	n.taken[name] = struct{}{}
	return name
}

// join shortens the name, never the suffix, to what the API server takes.
func join(name, suffix string) string {
	if excess := len(name) + len(suffix) - maxName; excess > 0 {
		name = strings.TrimRight(name[:max(len(name)-excess, 1)], "-.")
	}
	return name + suffix
}

// subdomain makes a label's value fit into a name: label values may have capitals and underscores.
func subdomain(value string) string {
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
