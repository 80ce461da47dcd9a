package applier

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Diff is what changes between two slices, either of which may be nil: labels first and endpoints
// last, in the order of their addresses.
func Diff(was, now *discoveryv1.EndpointSlice) []history.Change { return changes(was, now, nil) }

// changes is Diff with the reasons for what becomes of the endpoints; nil: there are none.
func changes(was, now *discoveryv1.EndpointSlice, why func(netip.Addr) string) []history.Change {
	var all []history.Change
	for _, part := range []func(*discoveryv1.EndpointSlice) map[string]string{labelsOf, ownersOf, portsOf, endpointsOf} {
		before, after := part(was), part(now)
		union := maps.Clone(before)
		maps.Copy(union, after)
		for _, key := range slices.SortedFunc(maps.Keys(union), byAddress) {
			if before[key] == after[key] {
				continue
			}
			c := history.Change{Field: key, Old: before[key], New: after[key]}
			if text, of := strings.CutPrefix(key, endpointKey); of && why != nil {
				if address, err := netip.ParseAddr(text); err == nil {
					c.Reason = why(address)
				}
			}
			all = append(all, c)
		}
	}
	return all
}

// Lines are changes in text, each in a line that is indented.
func Lines(all []history.Change) string {
	var b strings.Builder
	for i := range all {
		b.WriteString("  " + all[i].String() + "\n")
	}
	return b.String()
}

const endpointKey = "endpoint "

// byAddress puts 10.0.0.9 before 10.0.0.10: shorter numbers first.
func byAddress(a, b string) int {
	return cmp.Or(slices.CompareFunc(strings.FieldsFunc(a, isMark), strings.FieldsFunc(b, isMark), func(x, y string) int {
		if isNumber(x) && isNumber(y) {
			return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
		}
		return cmp.Compare(x, y)
	}), cmp.Compare(a, b))
}

func isMark(r rune) bool { return r == '.' || r == ' ' }

func isNumber(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsDigit(r) })
}

func labelsOf(s *discoveryv1.EndpointSlice) map[string]string {
	all := map[string]string{}
	if s != nil {
		for name, value := range s.Labels {
			all["label "+name] = orQuotes(display.Sanitize(value))
		}
	}
	return all
}

func ownersOf(s *discoveryv1.EndpointSlice) map[string]string {
	all := map[string]string{}
	if s != nil {
		for _, o := range s.OwnerReferences {
			all["owner "+o.Kind+" "+o.Name] = orQuotes(string(o.UID))
		}
	}
	return all
}

func portsOf(s *discoveryv1.EndpointSlice) map[string]string {
	all := map[string]string{}
	if s == nil {
		return all
	}
	for _, p := range s.Ports {
		name := "port"
		if p.Name != nil && *p.Name != "" {
			name += " " + *p.Name
		}
		number, protocol := "any", corev1.ProtocolTCP
		if p.Port != nil {
			number = strconv.Itoa(int(*p.Port))
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		text := fmt.Sprintf("%s/%s", number, protocol)
		if p.AppProtocol != nil && *p.AppProtocol != "" {
			text += " " + *p.AppProtocol
		}
		all[name] = text
	}
	return all
}

func endpointsOf(s *discoveryv1.EndpointSlice) map[string]string {
	all := map[string]string{}
	if s == nil {
		return all
	}
	given := func(b *bool, otherwise bool) bool {
		if b == nil {
			return otherwise
		}
		return *b
	}
	for _, e := range s.Endpoints {
		text := InWords(verdict.Conditions{
			Ready: given(e.Conditions.Ready, true), Serving: given(e.Conditions.Serving, true), Terminating: given(e.Conditions.Terminating, false),
		})
		if e.Zone != nil && *e.Zone != "" {
			text += ", zone " + *e.Zone
		}
		if e.NodeName != nil && *e.NodeName != "" {
			text += ", node " + *e.NodeName
		}
		all[endpointKey+strings.Join(e.Addresses, ",")] = display.Sanitize(text)
	}
	return all
}

// orQuotes makes something of a value that is there and empty.
func orQuotes(value string) string { return cmp.Or(value, `""`) }

// InWords says what consumers make of conditions.
func InWords(c verdict.Conditions) string {
	switch c {
	case verdict.Conditions{Ready: true, Serving: true}:
		return "ready"
	case verdict.Conditions{Serving: true, Terminating: true}:
		return "draining"
	case verdict.Conditions{}:
		return "not ready"
	}
	return fmt.Sprintf("ready=%t serving=%t terminating=%t", c.Ready, c.Serving, c.Terminating)
}
