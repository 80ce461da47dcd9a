package targets

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/services/writer/prober"
)

// portAllowlist is which ports may be written and probed.
type portAllowlist struct {
	sources    []Source
	targetPort uint16 // TARGET_PORT, always allowed; 0: none
}

// allowedPorts returns the ports that a target of these sources may use.
func (cfg *Config) allowedPorts(key Key, sources []Source) portAllowlist {
	f := portAllowlist{sources: sources}
	if cfg.isNamedTarget(key) {
		f.targetPort = cfg.NamedTarget.Port
	}
	return f
}

// deniedBy returns a source that does not allow the port.
func (f portAllowlist) deniedBy(port uint16) (source string, denied bool) {
	if f.targetPort != 0 && port == f.targetPort {
		return "", false
	}
	for _, source := range f.sources {
		if source.AllowsPort != nil && !source.AllowsPort(port) {
			return source.Name, true
		}
	}
	return "", false
}

// resolvePorts returns the ports of the slices: kube-proxy joins them to the ports of the Service by
// name and protocol, and sends traffic to the number in the slice.
func resolvePorts(given []corev1.ServicePort, allowlist portAllowlist) ([]discoveryv1.EndpointPort, *Rejection) {
	if allowlist.targetPort != 0 && len(given) != 1 {
		return nil, newRejection(ReasonAmbiguousTargetPort, "TARGET_PORT requires a Service with one port; this one has %d. Unset it and give each port a numeric targetPort.", len(given))
	}
	var out []discoveryv1.EndpointPort
	for _, p := range given {
		number := p.TargetPort.IntVal
		switch {
		case allowlist.targetPort != 0:
			number = int32(allowlist.targetPort)
		case p.TargetPort.Type == intstr.String:
			return nil, newRejection(ReasonNamedTargetPort, "targetPort %q of port %s is a name; only Pods can resolve it. Use a number, such as the NodePort in the secured cluster.", p.TargetPort.StrVal, portName(p))
		case number == 0:
			number = p.Port // as the API server defaults it
		}
		if number < 1 || number > 65535 {
			return nil, newRejection(ReasonInvalidTargetPort, "targetPort %d of port %s is out of range. Use 1 to 65535.", number, portName(p))
		}
		if source, denied := allowlist.deniedBy(uint16(number)); denied {
			return nil, newRejection(ReasonPortNotAllowed, "Port %d (target of port %s) is not allowed for source %s. Change it, or add it to ALLOWED_PORTS or to the source's ports in SOURCES_FILE.", number, portName(p), source)
		}
		name, protocol := p.Name, p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		out = append(out, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &number, AppProtocol: p.AppProtocol})
	}
	return out, nil
}

func resolveProbePort(settings Settings, ports []discoveryv1.EndpointPort, allowlist portAllowlist) (uint16, *Rejection) {
	port := settings.ProbePort
	for _, p := range ports {
		if port == 0 && *p.Protocol == corev1.ProtocolTCP {
			port = uint16(*p.Port)
		}
	}
	if port == 0 && settings.Probe.Mode != prober.Off {
		return 0, newRejection(ReasonNoProbePort, "Service has no TCP port to probe. Set %sprobe-port or turn probing off.", annotationPrefix)
	}
	if source, denied := allowlist.deniedBy(port); port != 0 && denied {
		return 0, newRejection(ReasonPortNotAllowed, "Port %d (probe port) is not allowed for source %s. Change it, or add it to ALLOWED_PORTS or to the source's ports in SOURCES_FILE.", port, source)
	}
	return port, nil
}

func portName(p corev1.ServicePort) string {
	if p.Name != "" {
		return p.Name
	}
	return strconv.Itoa(int(p.Port))
}
