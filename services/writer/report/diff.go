package report

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// CompareSlices returns what changes between two slices, either of which may be nil: labels first and endpoints
// last, in the order of their addresses. reasonFor explains what happens to an endpoint; it may be nil.
func CompareSlices(old, desired *discoveryv1.EndpointSlice, reasonFor func(netip.Addr) string) []Change {
	before, after := fields(old), fields(desired)
	union := maps.Clone(before)
	maps.Copy(union, after)
	var all []Change
	for key := range union {
		if before[key] == after[key] {
			continue
		}
		c := Change{Field: key, Old: before[key], New: after[key]}
		if address := addressOf(key); address.IsValid() && reasonFor != nil {
			c.Reason = reasonFor(address)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Change) int { return compareKeys(a.Field, b.Field) })
	return all
}

// Change is one difference between a slice before and after a write.
type Change struct {
	Field  string // "endpoint 10.0.0.1", "port http", "label app"
	Old    string // empty: it is added
	New    string // empty: it is removed
	Reason string // the decision's reason, if any
}

// String returns the change in one line: + is added, - removed and ~ changed.
func (c *Change) String() string {
	line := "~ " + c.Field + " " + c.Old + " -> " + c.New
	if c.Old == "" {
		line = "+ " + c.Field + " " + c.New
	} else if c.New == "" {
		line = "- " + c.Field + " " + c.Old
	}
	if c.Reason != "" {
		line += " (" + c.Reason + ")"
	}
	return line
}

// kinds of fields, in the order in which they are shown.
var kinds = []string{"label", "owner", "port", "endpoint"}

// compareKeys orders addresses by number, so that 10.0.0.9 comes before 10.0.0.10.
func compareKeys(a, b string) int {
	kind := func(key string) int {
		name, _, _ := strings.Cut(key, " ")
		return slices.Index(kinds, name)
	}
	return cmp.Or(kind(a)-kind(b), addressOf(a).Compare(addressOf(b)), cmp.Compare(a, b))
}

// addressOf returns the address of an endpoint's key; invalid: it is none.
func addressOf(key string) netip.Addr {
	text, _ := strings.CutPrefix(key, "endpoint ")
	address, _ := netip.ParseAddr(text)
	return address
}

// fields returns the content of a slice by name, as it is compared and shown.
func fields(s *discoveryv1.EndpointSlice) map[string]string {
	if s == nil {
		return map[string]string{}
	}
	all := map[string]string{}
	for _, p := range s.Ports {
		number := "any"
		if p.Port != nil {
			number = strconv.Itoa(int(*p.Port))
		}
		all[strings.TrimSpace("port "+ptr.Deref(p.Name, ""))] = strings.TrimSpace(fmt.Sprintf("%s/%s %s",
			number, ptr.Deref(p.Protocol, corev1.ProtocolTCP), ptr.Deref(p.AppProtocol, "")))
	}
	for name, value := range s.Labels {
		all["label "+name] = orQuotes(display.Sanitize(value))
	}
	for _, o := range s.OwnerReferences {
		all["owner "+o.Kind+" "+o.Name] = orQuotes(string(o.UID))
	}
	for _, e := range s.Endpoints {
		// Absent conditions have the defaults of the API.
		text := display.EndpointConditions(
			ptr.Deref(e.Conditions.Ready, true),
			ptr.Deref(e.Conditions.Serving, true),
			ptr.Deref(e.Conditions.Terminating, false),
		)
		if zone := ptr.Deref(e.Zone, ""); zone != "" {
			text += ", zone " + zone
		}
		if hostname := ptr.Deref(e.Hostname, ""); hostname != "" {
			text += ", hostname " + hostname
		}
		if node := ptr.Deref(e.NodeName, ""); node != "" {
			text += ", node " + node
		}
		all["endpoint "+strings.Join(e.Addresses, ",")] = display.Sanitize(text)
	}
	return all
}

// orQuotes shows a value that is set and empty.
func orQuotes(value string) string { return cmp.Or(value, `""`) }
