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

// place is where slices of ours are: a namespace, and the label that marks them there.
type place struct{ namespace, managedBy string }

// places are where the writer has something to write: where the Service given by name is,
// and where the others were found.
func (f *flight) places() []place {
	var all []place
	if named := f.targets.Named; named.Service != "" {
		all = append(all, place{named.Namespace, cmp.Or(named.ManagedBy, f.managedBy())})
	}
	for _, view := range f.views {
		all = append(all, place{view.Target.Namespace, view.Target.ManagedBy})
	}
	return unique(all)
}

// guarded are the places in which an address outside of all fences must be refused: those,
// and wherever else the writer watches, since it may write there.
func (f *flight) guarded() []place {
	all := f.places()
	elsewhere := f.watched()
	if elsewhere[0] == everywhere {
		elsewhere = []string{f.namespace}
	}
	for _, namespace := range elsewhere {
		if !slices.ContainsFunc(all, func(p place) bool { return p.namespace == namespace }) {
			all = append(all, place{namespace, f.managedBy()})
		}
	}
	return unique(all)
}

func unique(all []place) []place {
	slices.SortFunc(all, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.managedBy, b.managedBy))
	})
	return slices.Compact(all)
}

// managedBy marks the slices of labelled Services.
func (f *flight) managedBy() string { return "slicefeed-" + f.targets.Class }

// policy tries what an admission policy has to refuse, and what it may not. All are dry
// runs, of which nothing is stored.
func (f *flight) policy(ctx context.Context) (string, error) {
	stray, fences := f.stray(), "all fences of SOURCES_FILE"
	if f.cfg.SourcesFile == "" {
		fences = "SECURED_SUBNET_CIDR"
	}
	if !stray.IsValid() {
		return "", preflight.Warning("nothing is outside of %s, so no policy can narrow this credential: name the secured cluster's own network", fences)
	}
	var open []string
	for _, p := range f.guarded() {
		by, err := f.refusal(ctx, f.sample(p, []netip.Addr{stray}, nil))
		switch {
		case err != nil:
			return "", fmt.Errorf("a dry run of a slice with %s in %s was answered with something else than a policy's refusal: %w", stray, p.namespace, err)
		case by == "":
			open = append(open, p.namespace)
		}
	}
	if len(open) > 0 {
		return "", preflight.Warning("a slice with %s, outside of %s, was let pass: whoever steals this credential can point the Services of %s anywhere: "+
			"install the chart's policy, or edit and apply %s (its account, cidrs and binding; see docs/policy.md)", stray, fences, some(slices.Compact(open)), policyFile)
	}
	for _, p := range f.places() {
		for _, slice := range f.samples(p) {
			by, err := f.refusal(ctx, slice)
			if err != nil {
				return "", fmt.Errorf("dry run of a slice as the writer writes it in %s: %w", p.namespace, err)
			}
			if by != "" {
				return "", fmt.Errorf("a slice as the writer has to write it in %s is refused as well: %s: make the lists of %s agree with the writer's settings", p.namespace, by, policyFile)
			}
		}
	}
	return fmt.Sprintf("a slice with %s was refused, and one inside of %s was not", stray, fences), nil
}

// refusal has the API server judge a slice, and returns what a policy or a webhook has against it.
func (f *flight) refusal(ctx context.Context, slice *discoveryv1.EndpointSlice) (by string, err error) {
	_, err = f.client.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return "", nil
	}
	for _, judge := range []string{"ValidatingAdmissionPolicy", "admission webhook"} {
		if _, words, ok := strings.Cut(err.Error(), judge); ok {
			return judge + words, nil
		}
	}
	return "", err
}

// maxSampled is how many endpoints the writer puts into a slice, and how many ports the API server takes.
const maxSampled = 100

// samples are slices with an address of each CIDR and the ends of each range of ports: all
// that the settings let the writer write in a place.
func (f *flight) samples(p place) []*discoveryv1.EndpointSlice {
	var addresses []netip.Addr
	var ports []uint16
	if named := f.targets.Named; named.Port != 0 && named.Namespace == p.namespace {
		ports = append(ports, named.Port)
	}
	for _, o := range f.origins {
		if !o.Serves(p.namespace) {
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
	for _, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		same := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return planner.Family(a) != kind })
		for some := range slices.Chunk(same, maxSampled) {
			all = append(all, f.sample(p, some, ports))
		}
	}
	return all
}

// sample is a slice of ours with these addresses, and with as many of the ports as a slice takes.
func (f *flight) sample(p place, addresses []netip.Addr, ports []uint16) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, GenerateName: "slicefeed-preflight-", Labels: map[string]string{
			discoveryv1.LabelServiceName: "slicefeed-preflight", discoveryv1.LabelManagedBy: p.managedBy, planner.LabelWriter: f.namespace,
		}},
		AddressType: planner.Family(addresses[0]),
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.String()}})
	}
	ports = slices.Compact(slices.Sorted(slices.Values(ports)))
	for _, n := range ports[:min(len(ports), maxSampled)] {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: new("p" + strconv.Itoa(int(n))), Protocol: new(corev1.ProtocolTCP), Port: new(int32(n)),
		})
	}
	return slice
}

// stray is an address reserved for documentation that all fences keep out, of a family that
// one of them lets in; invalid: there is none.
func (f *flight) stray() netip.Addr {
	for _, text := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"} {
		a := netip.MustParseAddr(text)
		known := slices.ContainsFunc(f.origins, func(o *origin) bool {
			return slices.ContainsFunc(o.CIDRs, func(c netip.Prefix) bool { return c.Addr().Is4() == a.Is4() })
		})
		if known && !slices.ContainsFunc(f.origins, func(o *origin) bool { return o.inside(a) }) {
			return a
		}
	}
	return netip.Addr{}
}
