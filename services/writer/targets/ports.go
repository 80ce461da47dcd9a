package targets

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

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// SourcePorts are the ports of the endpoints of one source.
type SourcePorts struct {
	Ports     []discoveryv1.EndpointPort
	ProbePort uint16 // 0: none, only if probing is off
}

// ReportedPort is a port that a source reports of its own endpoints.
type ReportedPort struct {
	Name, Protocol string
	Number         uint16
}

// PortsOf returns the ports of a source's endpoints.
func (t Target) PortsOf(source string) []discoveryv1.EndpointPort {
	if p, other := t.SourcePorts[source]; other {
		return p.Ports
	}
	return t.Ports
}

// ProbePortAt returns the port at which an endpoint of a source is probed.
func (t Target) ProbePortAt(address netip.Addr, source string) uint16 {
	if p, kept := t.KeptPorts[address]; kept {
		return p.ProbePort
	}
	return t.ProbePortOf(source)
}

// ProbePortOf returns the port at which a source's endpoints are probed.
func (t Target) ProbePortOf(source string) uint16 {
	if p, other := t.SourcePorts[source]; other {
		return p.ProbePort
	}
	return t.ProbePort
}

// FollowsPorts reports whether the ports of a source are those that it reports.
func (t Target) FollowsPorts(source string) bool {
	_, given := t.Settings.Ports[source]
	return t.Settings.PortsFromSource && !given
}

// FollowPorts returns the ports of a source as it reports them, each found by the name and the protocol of a port of the
// Service. The problem says, for people, why they cannot be used; empty: they can.
func (t Target) FollowPorts(source string, reported []ReportedPort, allows func(port uint16) bool) (followed SourcePorts, problem string) {
	numbers := map[string]uint16{}
	for _, p := range t.Ports {
		found := slices.DeleteFunc(slices.Clone(reported), func(r ReportedPort) bool {
			return r.Protocol != string(*p.Protocol) || r.Name != *p.Name && (len(t.Ports) > 1 || len(reported) > 1)
		})
		switch {
		case len(found) == 0:
			return SourcePorts{}, fmt.Sprintf("source %s reports no %s port %q, which this %s has", source, *p.Protocol, *p.Name, t.kind())
		case len(found) > 1: // as in a rollout that changes it
			return SourcePorts{}, fmt.Sprintf("source %s reports several numbers of %s port %q", source, *p.Protocol, *p.Name)
		case allows != nil && !allows(found[0].Number):
			return SourcePorts{}, fmt.Sprintf(
				"port %d, which source %s reports, is not in its ports in SOURCES_FILE or in ALLOWED_PORTS",
				found[0].Number,
				source,
			)
		}
		numbers[*p.Name] = found[0].Number
	}
	ports := withNumbers(t.Ports, numbers)
	followed = SourcePorts{ports, t.probePortAmong(ports)}
	if allows != nil && followed.ProbePort != 0 && !allows(followed.ProbePort) {
		return SourcePorts{}, fmt.Sprintf(
			"probe port %d is not in the ports of source %s in SOURCES_FILE or in ALLOWED_PORTS",
			followed.ProbePort,
			source,
		)
	}
	return followed, ""
}

// ListedPorts returns the ports that the owned slices of a source list; false: there is none with endpoints.
func (t Target) ListedPorts(source string, existing []*discoveryv1.EndpointSlice) (SourcePorts, bool) {
	desired := t.Desired()
	for _, slice := range existing {
		if slice.DeletionTimestamp == nil && len(slice.Endpoints) > 0 && desired.Owns(slice) && planner.SourceOf(slice) == source {
			return SourcePorts{slice.Ports, t.probePortAmong(slice.Ports)}, true
		}
	}
	return SourcePorts{}, false
}

// KeepPorts returns the ports of endpoints that the owned slices list, but that their source no longer reports, if they
// differ from the ports of the source. Such an endpoint may not listen at the source's ports: they may have changed since,
// or belong to another exported Service. Ports that the source may not use are not kept, nor those of sources with fixed
// ports.
func (t Target) KeepPorts(
	listed []*discoveryv1.EndpointSlice,
	reports func(source string, address netip.Addr) bool,
	allows func(source string, port uint16) bool,
) map[netip.Addr]SourcePorts {
	if !t.Settings.PortsFromSource {
		return nil
	}
	desired := t.Desired()
	kept, seen := map[netip.Addr]SourcePorts{}, map[netip.Addr]bool{}
	for _, slice := range listed {
		source := planner.SourceOf(slice)
		if slice.DeletionTimestamp != nil || !desired.Owns(slice) || !t.FollowsPorts(source) {
			continue
		}
		ports, differ := t.otherNumbers(t.PortsOf(source), slice.Ports, func(port uint16) bool { return allows(source, port) })
		for _, e := range planner.EndpointsOf(slice) {
			switch {
			case seen[e.Address]: // two slices list it, since it moves to the ports of its source
				delete(kept, e.Address)
			case differ && !reports(source, e.Address):
				kept[e.Address] = ports
			}
			seen[e.Address] = true
		}
	}
	return kept
}

// otherNumbers returns the ports with the numbers that a slice lists; false: the numbers are the same, or the slice does
// not list all of the ports with numbers that are allowed.
func (t Target) otherNumbers(ports, listed []discoveryv1.EndpointPort, allows func(port uint16) bool) (others SourcePorts, differ bool) {
	ports = slices.Clone(ports)
	for i := range ports {
		p := &ports[i]
		at := slices.IndexFunc(listed, func(l discoveryv1.EndpointPort) bool {
			return ptr.Deref(l.Name, "") == ptr.Deref(p.Name, "") &&
				ptr.Deref(l.Protocol, corev1.ProtocolTCP) == ptr.Deref(p.Protocol, corev1.ProtocolTCP) &&
				l.Port != nil &&
				allows(uint16(*l.Port))
		})
		if at < 0 {
			return SourcePorts{}, false
		}
		differ = differ || ptr.Deref(p.Port, 0) != *listed[at].Port
		p.Port = listed[at].Port
	}
	return SourcePorts{ports, t.probePortAmong(ports)}, differ
}

// probePortAmong returns the port of the settings, or else the first TCP port; 0: there is none.
func (t Target) probePortAmong(ports []discoveryv1.EndpointPort) uint16 {
	if t.Settings.ProbePort != 0 {
		return t.Settings.ProbePort
	}
	for _, p := range ports {
		if ptr.Deref(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP && p.Port != nil {
			return uint16(*p.Port)
		}
	}
	return 0
}

// withNumbers returns the ports with other numbers, by name. A number without a name is that of the only port.
func withNumbers(ports []discoveryv1.EndpointPort, numbers map[string]uint16) []discoveryv1.EndpointPort {
	out := slices.Clone(ports)
	if number, given := numbers[""]; given && len(out) == 1 {
		out[0].Port = new(int32(number))
		return out
	}
	for i := range out {
		if number, given := numbers[*out[i].Name]; given {
			out[i].Port = new(int32(number))
		}
	}
	return out
}

// resolveSourcePorts sets the ports of each source that has others than the Service, and checks the ports of each source
// against its allowlist. Ports that follow a source are checked when it reports them.
func (cfg *Config) resolveSourcePorts(t *Target, given []corev1.ServicePort, sources []Source) *Rejection {
	if rejection := t.checkPortNames(); rejection != nil {
		return rejection
	}
	t.SourcePorts = nil
	for _, source := range sources {
		if numbers, others := t.Settings.Ports[source.Name]; others {
			if t.SourcePorts == nil {
				t.SourcePorts = map[string]SourcePorts{}
			}
			ports := withNumbers(t.Ports, numbers)
			t.SourcePorts[source.Name] = SourcePorts{ports, t.probePortAmong(ports)}
		} else if t.Settings.PortsFromSource {
			continue
		}
		for i, p := range t.PortsOf(source.Name) {
			if t.deniesPort(source, uint16(*p.Port)) {
				if t.Import { // it has no targetPort
					return newRejection(
						ReasonPortNotAllowed,
						"Port %d (of port %s) is not allowed for source %s. Set %sports.%[3]s to the port at that source, or add it to ALLOWED_PORTS or to the source's ports in SOURCES_FILE.",
						*p.Port,
						shownName(&given[i]),
						source.Name,
						annotationPrefix,
					)
				}
				return newRejection(
					ReasonPortNotAllowed,
					"Port %d (target of port %s) is not allowed for source %s. Change it, or add it to ALLOWED_PORTS or to the source's ports in SOURCES_FILE.",
					*p.Port,
					shownName(&given[i]),
					source.Name,
				)
			}
		}
		if port := t.ProbePortOf(source.Name); port != 0 && t.deniesPort(source, port) {
			return newRejection(
				ReasonPortNotAllowed,
				"Port %d (probe port) is not allowed for source %s. Change it, or add it to ALLOWED_PORTS or to the source's ports in SOURCES_FILE.",
				port,
				source.Name,
			)
		}
	}
	return nil
}

// checkPortNames rejects annotations ports.<source> whose source or port names the Service does not have.
func (t Target) checkPortNames() *Rejection {
	for _, source := range slices.Sorted(maps.Keys(t.Settings.Ports)) {
		if !slices.Contains(t.Settings.AllSources(), source) {
			return newRejection(
				ReasonInvalidAnnotation,
				"%sports.%.64s names a source that this %[3]s does not use. Remove it, or name the source in %[1]ssource.",
				annotationPrefix,
				source,
				t.kind(),
			)
		}
		for _, name := range slices.Sorted(maps.Keys(t.Settings.Ports[source])) {
			if name == "" && len(t.Ports) == 1 {
				continue
			}
			if !slices.ContainsFunc(t.Ports, func(p discoveryv1.EndpointPort) bool { return *p.Name == name }) {
				return newRejection(
					ReasonInvalidAnnotation,
					"%sports.%s names port %q, which the %s does not have. Use the names of its ports, or a number alone if it has one port.",
					annotationPrefix,
					source,
					name,
					t.kind(),
				)
			}
		}
	}
	return nil
}

// shownName returns the name of a port, or its number if it has none.
func shownName(p *corev1.ServicePort) string { return cmp.Or(p.Name, strconv.Itoa(int(p.Port))) }

// parsePorts reads the value of an annotation ports.<source>: http=30080,https=30443, or a number alone.
func parsePorts(text string) (map[string]uint16, bool) {
	ports := map[string]uint16{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, named := strings.Cut(part, "=")
		if !named {
			name, value = "", part
		}
		name = strings.TrimSpace(name)
		number, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
		if _, twice := ports[name]; twice || err != nil || number == 0 || named && name == "" {
			return nil, false
		}
		ports[name] = uint16(number)
	}
	return ports, true
}
