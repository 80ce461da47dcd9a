package app

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// sliceScope is where slices of ours are: a namespace, and the label that marks them there.
type sliceScope struct{ namespace, managedBy string }

// scopes are where the writer has something to write: where the Service given by name is,
// and where the others were found.
func (f *preflightChecker) scopes() []sliceScope {
	var all []sliceScope
	if named := f.targets.NamedTarget; named.Service != "" {
		all = append(all, sliceScope{named.Namespace, cmp.Or(named.ManagedBy, f.managedByLabel())})
	}
	for _, view := range f.resolutions {
		all = append(all, sliceScope{view.Target.Namespace, view.Target.ManagedBy})
	}
	return sortScopes(all)
}

// policyScopes are the places in which an address outside of all fences must be refused: those,
// and wherever else the writer watches, since it may write there.
func (f *preflightChecker) policyScopes() []sliceScope {
	all := f.scopes()
	elsewhere := f.watchedNamespaces()
	if elsewhere[0] == allNamespaces {
		elsewhere = []string{f.namespace}
	}
	for _, namespace := range elsewhere {
		if !slices.ContainsFunc(all, func(p sliceScope) bool { return p.namespace == namespace }) {
			all = append(all, sliceScope{namespace, f.managedByLabel()})
		}
	}
	return sortScopes(all)
}

func sortScopes(all []sliceScope) []sliceScope {
	slices.SortFunc(all, func(a, b sliceScope) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.managedBy, b.managedBy))
	})
	return slices.Compact(all)
}

// managedByLabel marks the slices of labelled Services.
func (f *preflightChecker) managedByLabel() string { return "slicefeed-" + f.targets.Class }

// checkPolicy tries what an admission policy has to refuse, and what it may not. All are dry
// runs, of which nothing is stored.
func (f *preflightChecker) checkPolicy(ctx context.Context) (string, error) {
	outside, allowlists := f.outsideAddress(), "all fences of SOURCES_FILE"
	if f.cfg.SourcesFile == "" {
		allowlists = "SECURED_SUBNET_CIDR"
	}
	if !outside.IsValid() {
		return "", preflight.Warning("nothing is outside of %s, so no policy can narrow this credential: name the secured cluster's own network", allowlists)
	}
	var unguarded []string
	for _, p := range f.policyScopes() {
		deniedBy, err := f.dryRunCreate(ctx, f.newSampleSlice(p, []netip.Addr{outside}, nil))
		switch {
		case err != nil:
			return "", fmt.Errorf("a dry run of a slice with %s in %s was answered with something else than a policy's refusal: %w", outside, p.namespace, err)
		case deniedBy == "":
			unguarded = append(unguarded, p.namespace)
		}
	}
	if len(unguarded) > 0 {
		return "", preflight.Warning("a slice with %s, outside of %s, was let pass: whoever steals this credential can point the Services of %s anywhere: "+
			"install the chart's policy, or edit and apply %s (its account, cidrs and binding; see docs/policy.md)", outside, allowlists, abbreviate(slices.Compact(unguarded)), policyFile)
	}
	for _, p := range f.scopes() {
		for _, slice := range f.sampleSlices(p) {
			deniedBy, err := f.dryRunCreate(ctx, slice)
			if err != nil {
				return "", fmt.Errorf("dry run of a slice as the writer writes it in %s: %w", p.namespace, err)
			}
			if deniedBy != "" {
				return "", fmt.Errorf("a slice as the writer has to write it in %s is refused as well: %s: make the lists of %s agree with the writer's settings", p.namespace, deniedBy, policyFile)
			}
		}
	}
	return fmt.Sprintf("a slice with %s was refused, and one inside of %s was not", outside, allowlists), nil
}

// dryRunCreate has the API server judge a slice, and returns what a policy or a webhook has against it.
func (f *preflightChecker) dryRunCreate(ctx context.Context, slice *discoveryv1.EndpointSlice) (deniedBy string, err error) {
	_, err = f.client.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return "", nil
	}
	for _, admission := range []string{"ValidatingAdmissionPolicy", "admission webhook"} {
		if _, reason, ok := strings.Cut(err.Error(), admission); ok {
			return admission + reason, nil
		}
	}
	return "", err
}

// maxSampleSize is how many endpoints the writer puts into a slice, and how many ports the API server takes.
const maxSampleSize = 100

// sampleSlices are slices with an address of each CIDR and the ends of each range of ports: all
// that the settings let the writer write in a place.
func (f *preflightChecker) sampleSlices(p sliceScope) []*discoveryv1.EndpointSlice {
	var addresses []netip.Addr
	var ports []uint16
	if named := f.targets.NamedTarget; named.Port != 0 && named.Namespace == p.namespace {
		ports = append(ports, named.Port)
	}
	for _, o := range f.sources {
		if !o.AllowsNamespace(p.namespace) {
			continue
		}
		for _, c := range o.CIDRs {
			a := c.Addr()
			if next := a.Next(); c.Contains(next) {
				a = next
			}
			addresses = append(addresses, a)
		}
		for _, r := range o.Ports {
			ports = append(ports, r.First, r.Last)
		}
	}
	var all []*discoveryv1.EndpointSlice
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		ofFamily := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return planner.FamilyOf(a) != family })
		for chunk := range slices.Chunk(ofFamily, maxSampleSize) {
			all = append(all, f.newSampleSlice(p, chunk, ports))
		}
	}
	return all
}

// newSampleSlice is a slice of ours with these addresses, and with as many of the ports as a slice takes.
func (f *preflightChecker) newSampleSlice(p sliceScope, addresses []netip.Addr, ports []uint16) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, GenerateName: "slicefeed-preflight-", Labels: map[string]string{
			discoveryv1.LabelServiceName: "slicefeed-preflight", discoveryv1.LabelManagedBy: p.managedBy, planner.LabelWriter: f.namespace,
		}},
		AddressType: planner.FamilyOf(addresses[0]),
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.String()}})
	}
	ports = slices.Compact(slices.Sorted(slices.Values(ports)))
	for _, n := range ports[:min(len(ports), maxSampleSize)] {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: new("p" + strconv.Itoa(int(n))), Protocol: new(corev1.ProtocolTCP), Port: new(int32(n)),
		})
	}
	return slice
}

// outsideAddress is an address reserved for documentation that all fences keep out, of a family that
// one of them lets in; invalid: there is none.
func (f *preflightChecker) outsideAddress() netip.Addr {
	for _, text := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"} {
		a := netip.MustParseAddr(text)
		sameFamily := slices.ContainsFunc(f.sources, func(o *sourceCheck) bool {
			return slices.ContainsFunc(o.CIDRs, func(c netip.Prefix) bool { return c.Addr().Is4() == a.Is4() })
		})
		if sameFamily && !slices.ContainsFunc(f.sources, func(o *sourceCheck) bool { return o.allowsAddress(a) }) {
			return a
		}
	}
	return netip.Addr{}
}
