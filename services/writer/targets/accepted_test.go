package targets

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/sources"
)

// twoSources returns a writer with the sources blue, which allows NodePorts, and green, which allows
// one port.
func twoSources() Config {
	cfg := newConfig()
	cfg.Sources = []sources.Source{
		{Name: "blue", Ports: ports(30000, 65535)},
		{Name: "green", Ports: ports(31000, 31000)},
	}
	return cfg
}

func serviceWithSource() *corev1.Service {
	svc := newService()
	svc.Annotations["slicefeed.dev/source"] = "blue"
	svc.Annotations["slicefeed.dev/probe-interval"] = "3s"
	return svc
}

func TestInvalidAnnotationKeepsAcceptedSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		alter  func(map[string]string)
		reason string
		part   string
	}{
		"a source that there is not":             {func(a map[string]string) { a["slicefeed.dev/source"] = "bleu" }, "UnknownSource", `Source "bleu" does not exist`},
		"no source any more":                     {func(a map[string]string) { delete(a, "slicefeed.dev/source") }, "SourceRequired", "It names none of the sources"},
		"a source that does not allow the port":  {func(a map[string]string) { a["slicefeed.dev/source"] = "green" }, "PortNotAllowed", "source green"},
		"a probe port outside the allowlist":     {func(a map[string]string) { a["slicefeed.dev/probe-port"] = "22" }, "PortNotAllowed", "Port 22"},
		"one that cannot be read":                {func(a map[string]string) { a["slicefeed.dev/probe"] = "icmp" }, "InvalidAnnotation", "icmp"},
		"a source that cannot be used from here": {func(a map[string]string) { a["slicefeed.dev/source"] = "api-only" }, "NamespaceNotAllowed", "Source api-only"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newResolver(twoSources())
			h.cfg.Sources = append(h.cfg.Sources, sources.Source{Name: "api-only", Namespaces: []string{"api"}})
			h.resolve(serviceWithSource())
			svc := serviceWithSource()
			tc.alter(svc.Annotations)
			svc.Annotations["slicefeed.dev/probe-timeout"] = "2s"
			for range 2 { // the second resolution has the same accepted settings
				resolution := h.resolve(svc)
				if resolution.Rejection != nil || resolution.Warning == nil {
					t.Fatalf("rejected %v, annotation error %v", resolution.Rejection, resolution.Warning)
				}
				if resolution.Warning.Reason != tc.reason || !strings.Contains(resolution.Warning.Message, tc.part) {
					t.Errorf("annotation error: %v %s", resolution.Warning.Reason, resolution.Warning)
				}
				s := resolution.Settings
				if diff := cmp.Diff(
					[]string{"blue"},
					s.Sources,
				); diff != "" || s.Probe.Interval != 3*time.Second || s.Probe.Timeout != time.Second ||
					resolution.ProbePort != 30080 {
					t.Errorf("%s settings %+v, probe port %d", diff, s, resolution.ProbePort)
				}
			}
			t.Run("after a restart it is rejected", func(t *testing.T) {
				if resolution := newResolver(
					h.cfg,
				).resolve(svc); resolution.Rejection == nil || resolution.Rejection.Reason != tc.reason ||
					resolution.Warning != nil {
					t.Errorf("rejected %v, annotation error %v", resolution.Rejection, resolution.Warning)
				}
			})
			t.Run("repaired, the annotations count again", func(t *testing.T) {
				svc := serviceWithSource()
				svc.Annotations["slicefeed.dev/probe-interval"] = "4s"
				if resolution := h.resolve(
					svc,
				); resolution.Warning != nil ||
					resolution.Settings.Probe.Interval != 4*time.Second {
					t.Errorf("annotation error %v, settings %+v", resolution.Warning, resolution.Settings)
				}
			})
		})
	}
}

func TestOperatorLimitsOverrideAcceptedSettings(t *testing.T) {
	for name, narrow := range map[string]func(*Config){
		"the ports are narrowed":      func(c *Config) { c.Sources[0].Ports = nil },
		"the namespaces are narrowed": func(c *Config) { c.Sources[0].Namespaces = []string{"api"} },
		"the source is gone":          func(c *Config) { c.Sources = c.Sources[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			h := newResolver(twoSources())
			mine := ownedSlice("shop-slicefeed", "svc-1")
			mine.Ports = []discoveryv1.EndpointPort{{Protocol: new(corev1.ProtocolTCP), Port: new(int32(30080))}}
			h.resolve(serviceWithSource(), mine)
			narrow(&h.cfg)
			svc := serviceWithSource()
			svc.Annotations["slicefeed.dev/source"] = "bleu"
			if resolution := h.resolve(
				svc,
				mine,
			); resolution.Rejection == nil || resolution.Warning != nil ||
				resolution.State == ProbesOnly {
				t.Errorf(
					"rejected %v, annotation error %v, state %d",
					resolution.Rejection,
					resolution.Warning,
					resolution.State,
				)
			}
		})
	}
}

// probedAt returns where the endpoints of a slice are probed.
func probedAt(resolution Resolution, slice *discoveryv1.EndpointSlice) uint16 {
	ports, _ := resolution.PortsOf("blue", ListedPorts(slice))
	return ports.Probe
}

func TestRejectedServiceFollowsItsProbes(t *testing.T) {
	port := func(number int32, protocol corev1.Protocol) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Protocol: &protocol, Port: &number}
	}
	mine := ownedSlice("shop-slicefeed", "svc-1")
	mine.Ports = []discoveryv1.EndpointPort{
		port(30053, corev1.ProtocolUDP),
		port(30080, corev1.ProtocolTCP),
		port(30443, corev1.ProtocolTCP),
	}
	for name, tc := range map[string]struct {
		alter  func(*Config, *corev1.Service)
		probes uint16 // 0: it is left alone
	}{
		"a selector": {func(_ *Config, svc *corev1.Service) { svc.Spec.Selector = map[string]string{"a": "b"} }, 30080},
		"a Local policy": {func(_ *Config, svc *corev1.Service) {
			svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, 30080},
		"a named targetPort":       {func(_ *Config, svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.FromString("http") }, 30080},
		"a targetPort not allowed": {func(_ *Config, svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.FromInt32(8080) }, 30080},
		"a port of its own to probe": {func(_ *Config, svc *corev1.Service) {
			svc.Spec.Selector, svc.Annotations["slicefeed.dev/probe-port"] = map[string]string{"a": "b"}, "30443"
		}, 30443},
		"being deleted": {func(_ *Config, svc *corev1.Service) { svc.DeletionTimestamp = &svc.CreationTimestamp }, 0},
		"not probed": {func(_ *Config, svc *corev1.Service) {
			svc.Spec.Selector, svc.Annotations["slicefeed.dev/probe"] = map[string]string{"a": "b"}, "off"
		}, 0},
		"a probed port not allowed": {func(c *Config, svc *corev1.Service) {
			svc.Spec.Selector, c.Sources[0].Ports = map[string]string{"a": "b"}, nil
		}, 0},
		"a source that is not known": {func(_ *Config, svc *corev1.Service) { svc.Annotations["slicefeed.dev/source"] = "bleu" }, 0},
		"annotations never readable": {func(_ *Config, svc *corev1.Service) { svc.Annotations["slicefeed.dev/probe"] = "icmp" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newResolver(twoSources())
			svc := serviceWithSource()
			tc.alter(&h.cfg, svc)
			resolution := h.resolve(svc, mine)
			if resolution.Rejection == nil || (resolution.State == ProbesOnly) != (tc.probes != 0) ||
				tc.probes != 0 &&
					(probedAt(resolution, mine) != tc.probes || !cmp.Equal(resolution.Settings.Sources, []string{"blue"})) {
				t.Errorf("rejected %v, state %d at %d", resolution.Rejection, resolution.State, probedAt(resolution, mine))
			}
		})
	}
	t.Run("in a slice that waits for a finalizer, too", func(t *testing.T) {
		svc, ending := serviceWithSource(), mine.DeepCopy()
		svc.Spec.Selector, ending.DeletionTimestamp = map[string]string{"a": "b"}, &svc.CreationTimestamp
		if resolution := newResolver(twoSources()).resolve(svc, ending); resolution.State != ProbesOnly {
			t.Errorf("rejected %v, not probed", resolution.Rejection)
		}
	})
	t.Run("by accepted settings where those of now are unusable", func(t *testing.T) {
		h := newResolver(twoSources())
		h.resolve(serviceWithSource(), mine)
		svc := serviceWithSource()
		svc.Annotations["slicefeed.dev/source"], svc.Spec.Selector = "bleu", map[string]string{"a": "b"}
		if resolution := h.resolve(
			svc,
			mine,
		); resolution.Rejection == nil || resolution.State != ProbesOnly ||
			resolution.Settings.Probe.Interval != 3*time.Second {
			t.Errorf("rejected %v, state %d", resolution.Rejection, resolution.State)
		}
	})
	t.Run("at the port that was probed before, whatever its place in the slices", func(t *testing.T) {
		h := newResolver(twoSources())
		svc := serviceWithSource()
		svc.Spec.Ports[0].TargetPort = intstr.FromInt32(30443)
		h.resolve(svc, mine)
		svc = svc.DeepCopy()
		svc.Spec.Selector = map[string]string{"a": "b"}
		if resolution := h.resolve(
			svc,
			mine,
		); resolution.State != ProbesOnly || probedAt(resolution, mine) != 30443 ||
			resolution.Settings.Probe.Mode != probe.TCP {
			t.Errorf("state %d at %d", resolution.State, probedAt(resolution, mine))
		}
	})
	t.Run("but not beside another writer of our name", func(t *testing.T) {
		theirs := ownedSlice("shop-slicefeed", "svc-1")
		theirs.Labels["slicefeed.dev/writer"], theirs.Ports = "elsewhere", mine.Ports
		if resolution := newResolver(
			twoSources(),
		).resolve(serviceWithSource(), theirs); resolution.Rejection == nil || resolution.Rejection.Reason != "OwnedByOtherWriter" ||
			resolution.State == ProbesOnly {
			t.Errorf("rejected %v, state %d", resolution.Rejection, resolution.State)
		}
	})
	t.Run("nor without a slice", func(t *testing.T) {
		svc := serviceWithSource()
		svc.Spec.Selector = map[string]string{"a": "b"}
		if resolution := newResolver(twoSources()).resolve(svc); resolution.State == ProbesOnly {
			t.Error("probed")
		}
	})
}
