package app

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/prose"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// sliceDiff shows what changes between two slices, either of which may be nil: + for what comes,
// - for what goes and ~ for what changes, labels first and endpoints last.
func sliceDiff(was, now *discoveryv1.EndpointSlice) string {
	var b strings.Builder
	for _, part := range []func(*discoveryv1.EndpointSlice) map[string]string{labelsOf, ownersOf, portsOf, endpointsOf} {
		before, after := part(was), part(now)
		union := maps.Clone(before)
		maps.Copy(union, after)
		for _, key := range slices.SortedFunc(maps.Keys(union), byAddress) {
			old, had := before[key]
			is, has := after[key]
			switch {
			case had && !has:
				fmt.Fprintf(&b, "  - %s %s\n", key, old)
			case has && !had:
				fmt.Fprintf(&b, "  + %s %s\n", key, is)
			case old != is:
				fmt.Fprintf(&b, "  ~ %s %s -> %s\n", key, old, is)
			}
		}
	}
	return b.String()
}

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
			all["label "+name] = prose.Sane(value)
		}
	}
	return all
}

func ownersOf(s *discoveryv1.EndpointSlice) map[string]string {
	all := map[string]string{}
	if s != nil {
		for _, o := range s.OwnerReferences {
			all["owner "+o.Kind+" "+o.Name] = string(o.UID)
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
		if p.AppProtocol != nil {
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
		text := inWords(verdict.Conditions{
			Ready: given(e.Conditions.Ready, true), Serving: given(e.Conditions.Serving, true), Terminating: given(e.Conditions.Terminating, false),
		})
		if e.Zone != nil && *e.Zone != "" {
			text += ", zone " + *e.Zone
		}
		if e.NodeName != nil && *e.NodeName != "" {
			text += ", node " + *e.NodeName
		}
		all["endpoint "+strings.Join(e.Addresses, ",")] = prose.Sane(text)
	}
	return all
}

// inWords says what consumers make of conditions.
func inWords(c verdict.Conditions) string {
	switch c {
	case verdict.Conditions{Ready: true, Serving: true}:
		return "ready"
	case verdict.Conditions{Serving: true, Terminating: true}:
		return "draining"
	case verdict.Conditions{}:
		return "out"
	}
	return fmt.Sprintf("ready=%t serving=%t terminating=%t", c.Ready, c.Serving, c.Terminating)
}

var verdictNames = map[verdict.Verdict]string{
	verdict.Serve: "serve", verdict.Drain: "drain", verdict.Out: "out", verdict.Gone: "gone", verdict.Hold: "hold",
}

// verdictTable is a table of the endpoints, with the rule that spoke last and the reason.
func verdictTable(all []verdict.Endpoint) string {
	if len(all) == 0 {
		return "no endpoint is listed, and none is told\n"
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ADDRESS\tVERDICT\tLISTED AS\tRULE\tREASON")
	for _, e := range all {
		as := "not listed"
		if e.Listed {
			as = inWords(e.Conditions)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", e.Address, verdictNames[e.Verdict], as, e.Rule, prose.Sane(e.Reason))
	}
	table.Flush() //nolint:errcheck // into memory
	return b.String()
}
