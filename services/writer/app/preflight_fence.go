package app

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/sources"
)

// insideFence reports whether an address is inside of the fence.
func insideFence(cfg *Config, a netip.Addr) bool {
	return slices.ContainsFunc(cfg.Subnets, func(s settings.Subnet) bool { return s.Contains(a) })
}

func fenceInWords(cfg *Config) string {
	return fmt.Sprintf("SECURED_SUBNET_CIDR=%v", settings.Prefixes(cfg.Subnets))
}

// fence wants the consuming API server outside: else whoever speaks for the inventory
// could have the Service, and what passes credentials to it, point there.
func (f *flight) fence(ctx context.Context) (string, error) {
	at, err := url.Parse(f.cluster.Host)
	if err != nil {
		return "", fmt.Errorf("address of the API server: %w", err)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", at.Hostname())
	if err != nil {
		return "", preflight.Warning("where the API server is cannot be looked up, so it is not known whether it is outside of the fence: %v", err)
	}
	return fenceAround(f.cfg, found, at.Port())
}

func fenceAround(cfg *Config, server []netip.Addr, port string) (string, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		number = 443
	}
	for _, a := range server {
		switch a = a.Unmap(); {
		case insideFence(cfg, a) && (sources.Source{Ports: cfg.AllowedPorts}.Allows(uint16(number)) || uint16(number) == cfg.Port):
			return "", fmt.Errorf("%s contains this cluster's own API server, %s, and its port is allowed: a lie of the inventory could point the Service there: narrow SECURED_SUBNET_CIDR or ALLOWED_PORTS", fenceInWords(cfg), netip.AddrPortFrom(a, uint16(number)))
		case insideFence(cfg, a):
			return "", preflight.Warning("%s contains this cluster's own API server, %s: a lie of the inventory could point the Service at that machine, though not at port %d: narrow SECURED_SUBNET_CIDR to the secured cluster's nodes", fenceInWords(cfg), a, number)
		}
	}
	return fenceInWords(cfg) + ": this cluster's API server is outside of it", nil
}

// policy tries what an admission policy has to refuse, and what it may not. Both are dry
// runs, of which nothing is stored.
func (f *flight) policy(ctx context.Context) (string, error) {
	stray := outsideFence(f.cfg)
	if !stray.IsValid() {
		return "", preflight.Warning("%s leaves nothing outside, so no policy can narrow this credential: name the secured cluster's own network", fenceInWords(f.cfg))
	}
	by, err := f.refusal(ctx, f.sample(stray))
	switch {
	case err != nil:
		return "", fmt.Errorf("a dry run of a slice with %s was answered with something else than a policy's refusal: %w", stray, err)
	case by == "":
		return "", preflight.Warning("a slice with %s, outside of SECURED_SUBNET_CIDR, was let pass: whoever steals this credential can point the Services of %s anywhere: "+
			"edit and apply %s/policy.yaml (its account, cidrs and binding; see docs/policy.md)", stray, f.cfg.Namespace, manifests)
	}
	for _, slice := range f.samples() {
		by, err := f.refusal(ctx, slice)
		if err != nil {
			return "", fmt.Errorf("dry run of a slice as the writer writes it: %w", err)
		}
		if by != "" {
			return "", fmt.Errorf("a slice as the writer has to write it is refused as well: %s: make the lists of %s/policy.yaml agree with the writer's settings", by, manifests)
		}
	}
	return fmt.Sprintf("a slice with %s was refused, and one inside of SECURED_SUBNET_CIDR was not", stray), nil
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

// samples are slices with an address of each CIDR and the ends of each range of ports: all
// that the settings let the writer write.
func (f *flight) samples() []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for _, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		var addresses []netip.Addr
		for _, s := range f.cfg.Subnets {
			if family(s.Addr()) != kind {
				continue
			}
			if a := s.Addr().Next(); s.Contains(a) {
				addresses = append(addresses, a)
			} else {
				addresses = append(addresses, s.Addr())
			}
		}
		if len(addresses) > 0 {
			all = append(all, f.sample(addresses...))
		}
	}
	return all
}

// sample is a slice of ours with these addresses.
func (f *flight) sample(addresses ...netip.Addr) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.cfg.Namespace, GenerateName: "slicefeed-preflight-", Labels: map[string]string{
			discoveryv1.LabelServiceName: f.cfg.Service, discoveryv1.LabelManagedBy: f.cfg.managedBy(), planner.LabelWriter: f.namespace,
		}},
		AddressType: family(addresses[0]),
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.String()}})
	}
	const most = 100 // ports of one slice
	numbers := []uint16{f.cfg.Port}
	for _, r := range f.cfg.AllowedPorts {
		numbers = append(numbers, r.First, r.Last)
	}
	slices.Sort(numbers)
	for _, n := range slices.Compact(numbers) {
		if n != 0 && len(slice.Ports) < most {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: new("p" + strconv.Itoa(int(n))), Protocol: new(corev1.ProtocolTCP), Port: new(int32(n)),
			})
		}
	}
	return slice
}

// outsideFence is an address reserved for documentation that the fence keeps out, of a family
// that it lets in; invalid: it lets all of them in.
func outsideFence(cfg *Config) netip.Addr {
	for _, text := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"} {
		a := netip.MustParseAddr(text)
		known := slices.ContainsFunc(cfg.Subnets, func(s settings.Subnet) bool { return s.Addr().Is4() == a.Is4() })
		if known && !insideFence(cfg, a) {
			return a
		}
	}
	return netip.Addr{}
}
