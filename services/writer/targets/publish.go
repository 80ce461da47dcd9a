package targets

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// servicePorts returns the numbers of the Service's own ports, by name.
func servicePorts(svc *corev1.Service) map[string]uint16 {
	ports := make(map[string]uint16, len(svc.Spec.Ports))
	for _, p := range svc.Spec.Ports {
		ports[p.Name] = uint16(p.Port)
	}
	return ports
}

// publish makes the resolution of a Service that is no target one that is published, if the Service asks for that.
func (r *Resolution) publish(svc *corev1.Service) {
	text, given := svc.Annotations[annotationPrefix+publishAnnotation]
	if !given {
		return
	}
	yes, err := strconv.ParseBool(strings.TrimSpace(text))
	if err != nil {
		r.reject(newRejection(ReasonInvalidAnnotation, "%s%s is %.40q: want true or false.", annotationPrefix, publishAnnotation, text))
		return
	}
	if yes {
		r.State = ReadOnly
	}
	r.Slices = slices.DeleteFunc(slices.Clone(r.Slices), func(s *discoveryv1.EndpointSlice) bool {
		return s.Labels[discoveryv1.LabelServiceName] != svc.Name
	})
}
