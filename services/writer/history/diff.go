package history

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
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// CompareSlices returns what changes between two slices, either of which may be nil: labels first and endpoints
// last, in the order of their addresses. reasonFor explains what happens to an endpoint; it may be nil.
func CompareSlices(old, desired *discoveryv1.EndpointSlice, reasonFor func(netip.Addr) string) []Change {
	var all []Change
	for _, fieldsOf := range []func(*discoveryv1.EndpointSlice) map[string]string{labelFields, ownerFields, PortFields, endpointFields} {
		before, after := fieldsOf(old), fieldsOf(desired)
		union := maps.Clone(before)
		maps.Copy(union, after)
		for _, key := range slices.SortedFunc(maps.Keys(union), compareKeys) {
			if before[key] == after[key] {
				continue
			}
			c := Change{Field: key, Old: before[key], New: after[key]}
			if text, ok := strings.CutPrefix(key, endpointPrefix); ok && reasonFor != nil {
				if address, err := netip.ParseAddr(text); err == nil {
					c.Reason = reasonFor(address)
				}
			}
			all = append(all, c)
		}
	}
	return all
}

// FormatChanges returns changes as indented lines of text.
func FormatChanges(all []Change) string {
	var b strings.Builder
	for i := range all {
		b.WriteString("  " + all[i].String() + "\n")
	}
	return b.String()
}

const endpointPrefix = "endpoint "

// compareKeys orders 10.0.0.9 before 10.0.0.10: shorter numbers first.
func compareKeys(a, b string) int {
	return cmp.Or(slices.CompareFunc(strings.FieldsFunc(a, isSeparator), strings.FieldsFunc(b, isSeparator), func(x, y string) int {
		if isNumber(x) && isNumber(y) {
			return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
		}
		return cmp.Compare(x, y)
	}), cmp.Compare(a, b))
}

func isSeparator(r rune) bool { return r == '.' || r == ' ' }

func isNumber(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsDigit(r) })
}

func labelFields(s *discoveryv1.EndpointSlice) map[string]string {
	all := map[string]string{}
	if s != nil {
		for name, value := range s.Labels {
			all["label "+name] = orQuotes(display.Sanitize(value))
		}
	}
	return all
}

func ownerFields(s *discoveryv1.EndpointSlice) map[string]string {
	all := map[string]string{}
	if s != nil {
		for _, o := range s.OwnerReferences {
			all["owner "+o.Kind+" "+o.Name] = orQuotes(string(o.UID))
		}
	}
	return all
}

// PortFields returns the ports of a slice by name, as they are compared and shown.
func PortFields(s *discoveryv1.EndpointSlice) map[string]string {
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

func endpointFields(s *discoveryv1.EndpointSlice) map[string]string {
	all := map[string]string{}
	if s == nil {
		return all
	}
	for _, e := range s.Endpoints {
		text := conditionsOf(e.Conditions).String()
		if e.Zone != nil && *e.Zone != "" {
			text += ", zone " + *e.Zone
		}
		if e.NodeName != nil && *e.NodeName != "" {
			text += ", node " + *e.NodeName
		}
		all[endpointPrefix+strings.Join(e.Addresses, ",")] = display.Sanitize(text)
	}
	return all
}

// orQuotes shows a value that is set and empty.
func orQuotes(value string) string { return cmp.Or(value, `""`) }

// conditionsOf returns what consumers read: absent conditions have the defaults of the API.
func conditionsOf(c discoveryv1.EndpointConditions) verdict.Conditions {
	return verdict.Conditions{Ready: c.Ready == nil || *c.Ready, Serving: c.Serving == nil || *c.Serving, Terminating: c.Terminating != nil && *c.Terminating}
}
