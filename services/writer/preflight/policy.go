package preflight

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

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/config"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// sliceScope is where the writer may write: a namespace, and the managed-by label it uses there.
type sliceScope struct {
	namespace, managedBy string
	hasTargets           bool // it must be able to write there
}

// scopes returns the namespaces of the named target and of the targets that were found, and the other
// watched namespaces.
func (pc *checker) scopes() []sliceScope {
	defaultManager := "slicefeed-" + pc.targets.Class
	var all []sliceScope
	if named := pc.targets.NamedTarget; named.Name != "" {
		all = append(all, sliceScope{named.Namespace, cmp.Or(named.ManagedBy, defaultManager), true})
	}
	for _, resolution := range pc.resolutions {
		all = append(all, sliceScope{resolution.Target.Namespace, resolution.Target.ManagedBy, true})
	}
	watched := pc.targets.Namespaces
	if watched[0] == config.AllNamespaces {
		watched = []string{pc.namespace}
	}
	for _, namespace := range watched {
		if !slices.ContainsFunc(all, func(scope sliceScope) bool { return scope.namespace == namespace }) {
			all = append(all, sliceScope{namespace, defaultManager, false})
		}
	}
	slices.SortFunc(all, func(a, b sliceScope) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.managedBy, b.managedBy))
	})
	return slices.Compact(all)
}

// checkPolicy tries what an admission policy must deny, and what it must not. It only makes dry
// runs: nothing is stored.
func (pc *checker) checkPolicy(ctx context.Context) (string, error) {
	outside, allowlists := pc.outsideAddress(), "all allowlists of SOURCES_FILE"
	if pc.cfg.SourcesFile == "" {
		allowlists = "SECURED_SUBNET_CIDR"
	}
	if !outside.IsValid() {
		return "", preflight.Warning(
			"no address is outside %s, so no policy can restrict this credential; name the secured cluster's own network",
			allowlists,
		)
	}
	var unguarded []string
	for _, scope := range pc.scopes() {
		deniedBy, err := pc.dryRunCreate(ctx, pc.newSampleSlice(scope, []netip.Addr{outside}, nil))
		switch {
		case err != nil:
			return "", fmt.Errorf("dry run of a slice with %s in %s failed, but no policy denied it: %w", outside, scope.namespace, err)
		case deniedBy == "":
			unguarded = append(unguarded, scope.namespace)
		}
	}
	if len(unguarded) > 0 {
		return "", preflight.Warning(
			"a slice with %s, outside %s, was accepted; a stolen credential could redirect the Services of %s anywhere; "+
				"install the chart's policy, or edit and apply %s (its account, cidrs and binding; see docs/design/policy.md)",
			outside,
			allowlists,
			display.List(slices.Compact(unguarded)),
			policyFile,
		)
	}
	for _, scope := range pc.scopes() {
		if !scope.hasTargets {
			continue
		}
		for _, slice := range pc.sampleSlices(scope) {
			deniedBy, err := pc.dryRunCreate(ctx, slice)
			if err != nil {
				return "", fmt.Errorf("dry run of a slice as the writer writes it in %s: %w", scope.namespace, err)
			}
			if deniedBy != "" {
				return "", fmt.Errorf(
					"a slice as the writer must write it in %s is denied too: %s; make the lists of %s agree with the writer's settings",
					scope.namespace,
					deniedBy,
					policyFile,
				)
			}
		}
	}
	return fmt.Sprintf("a slice with %s was denied, and one inside %s was not", outside, allowlists), nil
}

// dryRunCreate returns why a policy or a webhook denies a slice, empty if the slice is accepted.
func (pc *checker) dryRunCreate(ctx context.Context, slice *discoveryv1.EndpointSlice) (deniedBy string, err error) {
	_, err = pc.client.DiscoveryV1().
		EndpointSlices(slice.Namespace).
		Create(ctx, slice, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
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

// maxSampleSize is how many endpoints the writer puts into a slice, and how many ports the API
// server accepts in one.
const maxSampleSize = 100

// sampleSlices returns slices with an address of each CIDR and both ends of each port range that
// the settings allow in a scope.
func (pc *checker) sampleSlices(scope sliceScope) []*discoveryv1.EndpointSlice {
	var addresses []netip.Addr
	var ports []uint16
	if named := pc.targets.NamedTarget; named.FixedPort != 0 && named.Namespace == scope.namespace {
		ports = append(ports, named.FixedPort)
	}
	for _, sc := range pc.sources {
		if !sc.AllowsNamespace(scope.namespace) {
			continue
		}
		for _, c := range sc.CIDRs {
			a := c.Addr()
			if next := a.Next(); c.Contains(next) {
				a = next
			}
			addresses = append(addresses, a)
		}
		for _, r := range sc.Ports {
			ports = append(ports, r.First, r.Last)
		}
	}
	var all []*discoveryv1.EndpointSlice
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		ofFamily := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return planner.FamilyOf(a) != family })
		for chunk := range slices.Chunk(ofFamily, maxSampleSize) {
			all = append(all, pc.newSampleSlice(scope, chunk, ports))
		}
	}
	if pc.targets.ServiceImports && len(all) > 0 {
		all = append(all, asImportSlice(all[0]))
	}
	return all
}

// asImportSlice returns a slice as the writer writes it for a ServiceImport.
func asImportSlice(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	slice = slice.DeepCopy()
	slice.Labels[planner.LabelServiceImport] = slice.Labels[discoveryv1.LabelServiceName]
	slice.Labels[planner.LabelSourceCluster] = planner.DefaultSource
	delete(slice.Labels, discoveryv1.LabelServiceName)
	slice.OwnerReferences = []metav1.OwnerReference{
		{
			APIVersion: planner.GroupServiceImport + "/v1beta1",
			Kind:       planner.KindServiceImport,
			Name:       "slicefeed-preflight",
			UID:        "slicefeed-preflight",
		},
	}
	return slice
}

// newSampleSlice returns an owned slice with these addresses, and with as many of the ports as a
// slice can have.
func (pc *checker) newSampleSlice(scope sliceScope, addresses []netip.Addr, ports []uint16) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: scope.namespace, GenerateName: "slicefeed-preflight-", Labels: map[string]string{
			discoveryv1.LabelServiceName: "slicefeed-preflight",
			discoveryv1.LabelManagedBy:   scope.managedBy,
			planner.LabelWriter:          pc.namespace,
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

// outsideAddress returns an address reserved for documentation that no allowlist contains, of a
// family that one of them allows; invalid if there is none.
func (pc *checker) outsideAddress() netip.Addr {
	for _, text := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"} {
		a := netip.MustParseAddr(text)
		sameFamily := slices.ContainsFunc(pc.sources, func(sc *sourceCheck) bool {
			return slices.ContainsFunc(sc.CIDRs, func(c netip.Prefix) bool { return c.Addr().Is4() == a.Is4() })
		})
		if sameFamily && !slices.ContainsFunc(pc.sources, func(sc *sourceCheck) bool { return sc.allowsAddress(a) }) {
			return a
		}
	}
	return netip.Addr{}
}
