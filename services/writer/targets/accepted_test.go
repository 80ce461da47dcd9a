package targets

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/services/writer/prober"
)

// twoSources are blue, which allows NodePorts, and green, which allows only one.
func twoSources() Config {
	cfg := config()
	cfg.Sources = []Source{
		{Name: "blue", Allows: func(p uint16) bool { return p >= 30000 }},
		{Name: "green", Allows: func(p uint16) bool { return p == 31000 }},
	}
	return cfg
}

func pointed() *corev1.Service {
	svc := service()
	svc.Annotations["slicefeed.dev/source"] = "blue"
	svc.Annotations["slicefeed.dev/probe-interval"] = "3s"
	return svc
}

func TestUnusableAnnotationKeepsTheAcceptedSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		alter  func(map[string]string)
		reason string
		part   string
	}{
		"a source that there is not":             {func(a map[string]string) { a["slicefeed.dev/source"] = "bleu" }, "UnknownSource", `no source "bleu"`},
		"no source any more":                     {func(a map[string]string) { delete(a, "slicefeed.dev/source") }, "SourceNotGiven", "several sources"},
		"a source that does not allow the port":  {func(a map[string]string) { a["slicefeed.dev/source"] = "green" }, "PortOutsideFence", "source green"},
		"a probe port outside the allowlist":     {func(a map[string]string) { a["slicefeed.dev/probe-port"] = "22" }, "PortOutsideFence", "Port 22"},
		"one that cannot be read":                {func(a map[string]string) { a["slicefeed.dev/probe"] = "icmp" }, "InvalidAnnotation", "icmp"},
		"a source that cannot be used from here": {func(a map[string]string) { a["slicefeed.dev/source"] = "api-only" }, "NamespaceOutsideFence", "source api-only"},
	} {
		t.Run(name, func(t *testing.T) {
			h := since(twoSources())
			h.cfg.Sources = append(h.cfg.Sources, Source{Name: "api-only", Namespaces: []string{"api"}})
			h.see(pointed())
			svc := pointed()
			tc.alter(svc.Annotations)
			svc.Annotations["slicefeed.dev/probe-timeout"] = "2s"
			for range 2 { // the second look has the same accepted settings
				view := h.see(svc)
				if view.Refusal != nil || view.Mistake == nil {
					t.Fatalf("rejected %v, mistake %v", view.Refusal, view.Mistake)
				}
				if view.Mistake.Reason != tc.reason || !strings.Contains(view.Mistake.Message, tc.part) || !strings.Contains(view.Mistake.Message, "keeps the settings that it had") {
					t.Errorf("mistake: %v %s", view.Mistake.Reason, view.Mistake)
				}
				s := view.Target.Settings
				if diff := cmp.Diff([]string{"blue"}, s.Sources); diff != "" || s.Probe.Interval != 3*time.Second || s.Probe.Timeout != time.Second || view.Target.ProbePort != 30080 {
					t.Errorf("%s settings %+v, probe port %d", diff, s, view.Target.ProbePort)
				}
			}
			t.Run("after a restart it is rejected", func(t *testing.T) {
				if view := since(h.cfg).see(svc); view.Refusal == nil || view.Refusal.Reason != tc.reason || view.Mistake != nil {
					t.Errorf("rejected %v, mistake %v", view.Refusal, view.Mistake)
				}
			})
			t.Run("repaired, the annotations count again", func(t *testing.T) {
				svc := pointed()
				svc.Annotations["slicefeed.dev/probe-interval"] = "4s"
				if view := h.see(svc); view.Mistake != nil || view.Target.Settings.Probe.Interval != 4*time.Second {
					t.Errorf("mistake %v, settings %+v", view.Mistake, view.Target.Settings)
				}
			})
		})
	}
}

func TestOperatorsLimitsWinOverAcceptedSettings(t *testing.T) {
	for name, narrow := range map[string]func(*Config){
		"the ports are narrowed":      func(c *Config) { c.Sources[0].Allows = func(uint16) bool { return false } },
		"the namespaces are narrowed": func(c *Config) { c.Sources[0].Namespaces = []string{"api"} },
		"the source is gone":          func(c *Config) { c.Sources = c.Sources[1:] },
	} {
		t.Run(name, func(t *testing.T) {
			h := since(twoSources())
			mine := ours("shop-slicefeed", "svc-1")
			mine.Ports = []discoveryv1.EndpointPort{{Protocol: new(corev1.ProtocolTCP), Port: new(int32(30080))}}
			h.see(pointed(), mine)
			narrow(&h.cfg)
			svc := pointed()
			svc.Annotations["slicefeed.dev/source"] = "bleu"
			if view := h.see(svc, mine); view.Refusal == nil || view.Mistake != nil || view.ProbesOnly {
				t.Errorf("rejected %v, mistake %v, probed %t", view.Refusal, view.Mistake, view.ProbesOnly)
			}
		})
	}
}

func TestRejectedServiceFollowsItsProbes(t *testing.T) {
	port := func(number int32, protocol corev1.Protocol) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Protocol: &protocol, Port: &number}
	}
	mine := ours("shop-slicefeed", "svc-1")
	mine.Ports = []discoveryv1.EndpointPort{port(30053, corev1.ProtocolUDP), port(30080, corev1.ProtocolTCP), port(30443, corev1.ProtocolTCP)}
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
			svc.Spec.Selector, c.Sources[0].Allows = map[string]string{"a": "b"}, func(uint16) bool { return false }
		}, 0},
		"a source that is not known": {func(_ *Config, svc *corev1.Service) { svc.Annotations["slicefeed.dev/source"] = "bleu" }, 0},
		"annotations never readable": {func(_ *Config, svc *corev1.Service) { svc.Annotations["slicefeed.dev/probe"] = "icmp" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := since(twoSources())
			svc := pointed()
			tc.alter(&h.cfg, svc)
			view := h.see(svc, mine)
			if view.Refusal == nil || view.ProbesOnly != (tc.probes != 0) || tc.probes != 0 && (view.Target.ProbePort != tc.probes || !cmp.Equal(view.Target.Settings.Sources, []string{"blue"})) {
				t.Errorf("rejected %v, probed %t at %d", view.Refusal, view.ProbesOnly, view.Target.ProbePort)
			}
		})
	}
	t.Run("by accepted settings where those of now are unusable", func(t *testing.T) {
		h := since(twoSources())
		h.see(pointed(), mine)
		svc := pointed()
		svc.Annotations["slicefeed.dev/source"], svc.Spec.Selector = "bleu", map[string]string{"a": "b"}
		if view := h.see(svc, mine); view.Refusal == nil || !view.ProbesOnly || view.Target.Settings.Probe.Interval != 3*time.Second {
			t.Errorf("rejected %v, probed %t", view.Refusal, view.ProbesOnly)
		}
	})
	t.Run("at the port that was probed before, whatever its place in the slices", func(t *testing.T) {
		h := since(twoSources())
		svc := pointed()
		svc.Spec.Ports[0].TargetPort = intstr.FromInt32(30443)
		h.see(svc, mine)
		svc = svc.DeepCopy()
		svc.Spec.Selector = map[string]string{"a": "b"}
		if view := h.see(svc, mine); !view.ProbesOnly || view.Target.ProbePort != 30443 || view.Target.Settings.Probe.Mode != prober.TCP {
			t.Errorf("probed %t at %d", view.ProbesOnly, view.Target.ProbePort)
		}
	})
	t.Run("but not beside another writer of our name", func(t *testing.T) {
		theirs := ours("shop-slicefeed", "svc-1")
		theirs.Labels["slicefeed.dev/writer"], theirs.Ports = "elsewhere", mine.Ports
		if view := since(twoSources()).see(pointed(), theirs); view.Refusal == nil || view.Refusal.Reason != "OtherWriter" || view.ProbesOnly {
			t.Errorf("rejected %v, probed %t", view.Refusal, view.ProbesOnly)
		}
	})
	t.Run("nor without a slice", func(t *testing.T) {
		svc := pointed()
		svc.Spec.Selector = map[string]string{"a": "b"}
		if view := since(twoSources()).see(svc); view.ProbesOnly {
			t.Error("probed")
		}
	})
}
