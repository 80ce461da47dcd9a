package targets

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/sources"
)

// Ports are those of an endpoint.
type Ports struct {
	Text  string // names them; see ParsePorts. Empty: those of the Service
	Probe uint16 // at which it is probed; 0: none
}

// Allows reports whether a port may be written and probed for a source. TARGET_PORT always may. A source that is not
// configured, which only a slice names, may use what one of the configured sources may.
func (t *Target) Allows(source string, port uint16) bool {
	if port == t.FixedPort {
		return true
	}
	if at := slices.IndexFunc(t.Configured, func(s sources.Source) bool { return s.Name == source }); at >= 0 {
		return t.Configured[at].AllowsPort(port)
	}
	return slices.ContainsFunc(t.Configured, func(s sources.Source) bool { return s.AllowsPort(port) })
}

// PortsOf returns the ports of an endpoint of a source: those of the Service, those of the annotation ports.<source>, or,
// if they follow the source, those of the known ones that have the name and the protocol of a port of the Service and
// are allowed. Known are the ports of the node; while those cannot be used, and for a rejected Service, the ports of the
// slice that lists the endpoint. The problem says, for people, why there are none, or none to probe; empty: there are.
func (t *Target) PortsOf(source string, known []contract.Port) (ports Ports, problem string) {
	var found []discoveryv1.EndpointPort
	switch {
	case t.State == ProbesOnly:
		for _, p := range known {
			if t.Allows(source, p.Number) {
				found = append(found, endpointPort(p))
			}
		}
	case !t.FollowsPorts(source): // they were checked when the target was resolved
		found = t.OwnPorts(source)
	default:
		for _, p := range t.Ports {
			matching := slices.DeleteFunc(slices.Clone(known), func(k contract.Port) bool {
				return k.Protocol != string(*p.Protocol) || k.Name != *p.Name && (len(t.Ports) > 1 || len(known) > 1)
			})
			switch {
			case len(matching) == 0:
				missing := fmt.Sprintf("source %s reports no %s port %q, which this %s has", source, *p.Protocol, *p.Name, t.kind())
				problem = cmp.Or(problem, missing)
			case len(matching) > 1: // as in a rollout that changes it
				return Ports{}, fmt.Sprintf("source %s reports several numbers of %s port %q", source, *p.Protocol, *p.Name)
			case !t.Allows(source, matching[0].Number):
				problem = fmt.Sprintf(
					"port %d, which source %s reports, is not in its ports in SOURCES_FILE or in ALLOWED_PORTS", matching[0].Number, source,
				)
			default:
				p.Port = new(int32(matching[0].Number))
				found = append(found, p)
			}
		}
	}
	if len(found) == 0 && problem != "" {
		return Ports{}, problem
	}
	ports.Text, ports.Probe = portsText(found), t.probePortAmong(found)
	if t.Settings.Probe.Mode == probe.Off || ports.Probe != 0 && t.Allows(source, ports.Probe) {
		return ports, ""
	}
	if ports.Probe == 0 {
		return ports, fmt.Sprintf("source %s reports no TCP port to probe", source)
	}
	problem = fmt.Sprintf("probe port %d is not in the ports of source %s in SOURCES_FILE or in ALLOWED_PORTS", ports.Probe, source)
	return Ports{Text: ports.Text}, problem
}

// OwnPorts returns the ports of a source whose ports do not follow it: those of the Service, with the numbers of
// ports.<source>. A number without a name is that of the only port.
func (t *Target) OwnPorts(source string) []discoveryv1.EndpointPort {
	ports, numbers := slices.Clone(t.Ports), t.Settings.Ports[source]
	for i := range ports {
		number := numbers[*ports[i].Name]
		if len(ports) == 1 {
			number = cmp.Or(numbers[""], number)
		}
		if number != 0 {
			ports[i].Port = new(int32(number))
		}
	}
	return ports
}

// FollowsPorts reports whether the ports of a source are those that it reports.
func (t *Target) FollowsPorts(source string) bool {
	_, given := t.Settings.Ports[source]
	return t.Settings.PortsFromSource && !given
}

// PortRule is equal for two targets only if PortsOf returns the same for them, with the same allowlists.
func (t *Target) PortRule() string {
	return fmt.Sprint(t.State, t.Settings, portsText(t.Ports), t.ProbePort, t.FixedPort)
}

// ListedPorts returns the ports of a slice that have a number.
func ListedPorts(slice *discoveryv1.EndpointSlice) (all []contract.Port) {
	for _, p := range slice.Ports {
		if number := ptr.Deref(p.Port, 0); number >= 1 && number <= 65535 {
			all = append(all, contract.Port{
				Name: ptr.Deref(p.Name, ""), Protocol: string(ptr.Deref(p.Protocol, corev1.ProtocolTCP)), Number: uint16(number),
			})
		}
	}
	return all
}

func endpointPort(p contract.Port) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &p.Name, Protocol: new(corev1.Protocol(p.Protocol)), Port: new(int32(p.Number))}
}

// portsText returns the ports as http/TCP:30080,dns/UDP:53. An application protocol is a third part.
func portsText(all []discoveryv1.EndpointPort) string {
	var text strings.Builder
	for i, p := range all {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(*p.Name + "/" + string(*p.Protocol) + ":" + strconv.Itoa(int(*p.Port)))
		if p.AppProtocol != nil {
			text.WriteString(":" + *p.AppProtocol)
		}
	}
	return text.String()
}

// ParsePorts returns what the Text of Ports names.
func ParsePorts(text string) (all []discoveryv1.EndpointPort) {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, rest, _ := strings.Cut(part, "/")
		protocol, rest, _ := strings.Cut(rest, ":")
		number, app, hasApp := strings.Cut(rest, ":")
		n, _ := strconv.ParseUint(number, 10, 16)
		p := endpointPort(contract.Port{Name: name, Protocol: protocol, Number: uint16(n)})
		if hasApp {
			p.AppProtocol = &app
		}
		all = append(all, p)
	}
	return all
}

// probePortAmong returns the port of the settings, or else the first TCP port; 0: there is none. Of a rejected Service
// it is the one that was probed before, if it is among them.
func (t *Target) probePortAmong(ports []discoveryv1.EndpointPort) (port uint16) {
	if t.Settings.ProbePort != 0 {
		return t.Settings.ProbePort
	}
	for _, p := range ports {
		if number := uint16(*p.Port); *p.Protocol == corev1.ProtocolTCP && (port == 0 || t.State == ProbesOnly && number == t.ProbePort) {
			port = number
		}
	}
	return port
}

// checkSourcePorts checks the annotations ports.<source>, and the ports of each source against its allowlist. PortsOf
// checks those that follow a source.
func (t *Target) checkSourcePorts(given []corev1.ServicePort) *Rejection {
	if rejection := t.checkPortNames(); rejection != nil {
		return rejection
	}
	for _, source := range t.Settings.AllSources() {
		if t.FollowsPorts(source) {
			continue
		}
		ports := t.OwnPorts(source)
		for i, p := range ports {
			if t.Allows(source, uint16(*p.Port)) {
				continue
			}
			of := "target of"
			if t.Import { // it has no targetPort
				of = "of"
			}
			return newRejection(
				"PortNotAllowed",
				"Port %d (%s port %s) is not allowed for source %s.",
				*p.Port,
				of,
				shownName(&given[i]),
				source,
			)
		}
		if port := t.probePortAmong(ports); port != 0 && !t.Allows(source, port) {
			return newRejection("PortNotAllowed", "Port %d (probe port) is not allowed for source %s.", port, source)
		}
	}
	return nil
}

// checkPortNames rejects annotations ports.<source> whose source or port names the Service does not have.
func (t *Target) checkPortNames() *Rejection {
	for _, source := range slices.Sorted(maps.Keys(t.Settings.Ports)) {
		if !slices.Contains(t.Settings.AllSources(), source) {
			return newRejection(
				reasonInvalidAnnotation, "%sports.%.40s names a source that this %s does not use.", annotationPrefix, source, t.kind(),
			)
		}
		for _, name := range slices.Sorted(maps.Keys(t.Settings.Ports[source])) {
			known := name == "" && len(t.Ports) == 1 ||
				slices.ContainsFunc(t.Ports, func(p discoveryv1.EndpointPort) bool { return *p.Name == name })
			if !known {
				return newRejection(
					reasonInvalidAnnotation,
					"%sports.%.30s names port %.20q, which the %s does not have.", annotationPrefix, source, name, t.kind(),
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
		number, err := parsePort(strings.TrimSpace(value))
		if _, twice := ports[name]; twice || err != nil || named && name == "" {
			return nil, false
		}
		ports[name] = number
	}
	return ports, true
}
