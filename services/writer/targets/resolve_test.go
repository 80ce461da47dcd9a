package targets

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/sources"
)

// resolve resolves a Service without memory.
func resolve(cfg Config, svc *corev1.Service, existing ...*discoveryv1.EndpointSlice) Resolution {
	key := shop
	if svc != nil {
		key = keyOf(svc)
	}
	resolution, _ := Resolve(cfg, Input{Key: key, Service: svc, Slices: existing})
	return resolution
}

func TestResolvesTargetOfService(t *testing.T) {
	resolution := resolve(newConfig(), newService())
	if resolution.State != Managed || resolution.Warning != nil ||
		resolution.Settings.Paused {
		t.Fatalf("%+v", resolution)
	}
	settings := defaultSettings()
	settings.Sources = []string{"default"}
	want := Target{
		Key: shop, State: Managed,
		Owner:     metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "shop", UID: "svc-1"},
		ManagedBy: "slicefeed-default", Writer: "slicefeed", FirstName: "shop-slicefeed",
		Families:  []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		Ports:     []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(30080))}},
		ProbePort: 30080,
		Settings:  settings, Configured: newConfig().Sources, ServicePorts: map[string]uint16{"http": 80},
	}
	if diff := cmp.Diff(want, resolution.Target); diff != "" {
		t.Error(diff)
	}
	desired := resolution.Desired()
	if desired.Namespace != "web" || desired.Service != "shop" || desired.FirstName != "shop-slicefeed" || len(desired.Ports) != 1 {
		t.Errorf("%+v", desired)
	}
}

func TestNamedServiceIsTargetWithAnyLabel(t *testing.T) {
	cfg := configWithNamedTarget()
	cfg.NamedTarget.ManagedBy = "custom"
	for _, class := range []string{"", "default", "another"} {
		svc := newService()
		svc.Labels = map[string]string{LabelClass: class}
		resolution := resolve(cfg, svc)
		if resolution.State != Managed || resolution.ManagedBy != "custom" ||
			resolution.FirstName != "shop-nodes" {
			t.Errorf("with the class %q: %+v", class, resolution)
		}
	}
	if resolution := resolve(
		cfg,
		namedService("cart", "svc-2"),
	); resolution.ManagedBy != "slicefeed-default" ||
		resolution.FirstName != "cart-slicefeed" {
		t.Errorf("a labeled one has the managed-by of the class: %+v", resolution.Target)
	}
}

func TestAcceptsValidServices(t *testing.T) {
	for name, tc := range map[string]struct {
		alter func(*Config, *corev1.Service)
		check func(Target) bool
	}{
		"TARGET_PORT is written for the only port, whatever its targetPort says": {
			func(c *Config, svc *corev1.Service) {
				c.NamedTarget.FixedPort, svc.Spec.Ports[0].TargetPort = 31000, intstr.FromString("http")
			},
			func(t Target) bool { return *t.Ports[0].Port == 31000 && t.ProbePort == 31000 },
		},
		"TARGET_PORT is allowed by any allowlist": {
			func(c *Config, _ *corev1.Service) {
				c.NamedTarget.FixedPort, c.Sources[0].Ports = 8080, nil
			},
			func(t Target) bool { return *t.Ports[0].Port == 8080 },
		},
		"several ports each by their targetPort, the probe on the first TCP one": {
			func(_ *Config, svc *corev1.Service) {
				svc.Spec.Ports = []corev1.ServicePort{
					{Name: "dns", Port: 53, TargetPort: intstr.FromInt32(30053), Protocol: corev1.ProtocolUDP},
					{Name: "web", Port: 80, TargetPort: intstr.FromInt32(30080)},
				}
			},
			func(t Target) bool { return len(t.Ports) == 2 && *t.Ports[0].Port == 30053 && t.ProbePort == 30080 },
		},
		"a UDP Service with a port to probe": {
			func(_ *Config, svc *corev1.Service) {
				svc.Annotations["slicefeed.dev/probe-port"], svc.Spec.Ports[0].Protocol = "30001", corev1.ProtocolUDP
			},
			func(t Target) bool { return t.ProbePort == 30001 },
		},
		"a UDP Service without probing": {
			func(_ *Config, svc *corev1.Service) {
				svc.Annotations["slicefeed.dev/probe"], svc.Spec.Ports[0].Protocol = "off", corev1.ProtocolUDP
			},
			func(t Target) bool { return t.ProbePort == 0 },
		},
		"headless": {
			func(_ *Config, svc *corev1.Service) {
				svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "None", []string{"None"}
			},
			func(t Target) bool { return len(t.Ports) == 1 },
		},
		"headless without a port, if probing is off": {
			func(_ *Config, svc *corev1.Service) {
				svc.Annotations["slicefeed.dev/probe"], svc.Spec.ClusterIP, svc.Spec.Ports = "off", "None", nil
			},
			func(t Target) bool { return len(t.Ports) == 0 },
		},
		"both families in the Service's order": {
			func(_ *Config, svc *corev1.Service) { svc.Spec.IPFamilies = []corev1.IPFamily{"IPv6", "IPv4"} },
			func(t Target) bool { return cmp.Equal(t.Families, []discoveryv1.AddressType{"IPv6", "IPv4"}) },
		},
		"a Service from before dual stack, by its cluster IP": {
			func(_ *Config, svc *corev1.Service) {
				svc.Spec.IPFamilies, svc.Spec.ClusterIP, svc.Spec.ClusterIPs = nil, "fd00::9", nil
			},
			func(t Target) bool { return cmp.Equal(t.Families, []discoveryv1.AddressType{"IPv6"}) },
		},
		"an unset targetPort is the port": {
			func(_ *Config, svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.IntOrString{} },
			func(t Target) bool { return *t.Ports[0].Port == 80 },
		},
		"Cluster policies": {
			func(_ *Config, svc *corev1.Service) {
				svc.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
				svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			},
			func(Target) bool { return true },
		},
		"1,000 ports": {
			func(_ *Config, svc *corev1.Service) { svc.Spec.Ports = manyPorts(1000) },
			func(t Target) bool { return len(t.Ports) == 1000 && *t.Ports[999].Port == 30999 },
		},
		"as many ports as a slice takes": {
			func(_ *Config, svc *corev1.Service) { svc.Spec.Ports = manyPorts(MaxPorts) },
			func(t Target) bool { return len(t.Ports) == MaxPorts },
		},
		"publishNotReadyAddresses, which the target knows": {
			func(_ *Config, svc *corev1.Service) { svc.Spec.PublishNotReadyAddresses = true },
			func(t Target) bool { return t.PublishNotReadyAddresses },
		},
		"trafficDistribution, which the target knows": {
			func(_ *Config, svc *corev1.Service) { svc.Spec.TrafficDistribution = new("PreferClose") },
			func(t Target) bool { return t.TrafficDistribution == "PreferClose" },
		},
		"labels, which its slices get": {
			func(_ *Config, svc *corev1.Service) { svc.Labels["team"] = "shop" },
			func(t Target) bool {
				d := t.Desired()
				return len(d.Labels) == 1 && d.Labels["team"] == "shop" && !d.Headless
			},
		},
		"a headless one": {
			func(_ *Config, svc *corev1.Service) { svc.Spec.ClusterIP = corev1.ClusterIPNone },
			func(t Target) bool { return t.Desired().Headless },
		},
		"several sources that all allow it": {
			func(c *Config, svc *corev1.Service) {
				c.Sources = []sources.Source{{Name: "green", Namespaces: []string{"api", "web"}, Ports: anyPort}, {Name: "blue", Ports: anyPort}}
				svc.Annotations["slicefeed.dev/source"] = "green, blue"
			},
			func(t Target) bool { return cmp.Equal(t.Settings.Sources, []string{"blue", "green"}) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, svc := configWithNamedTarget(), newService()
			tc.alter(&cfg, svc)
			resolution := resolve(cfg, svc)
			if resolution.Rejection != nil || resolution.Warning != nil || !tc.check(resolution.Target) {
				t.Errorf("%+v, rejected: %v, annotation error: %v", resolution.Target, resolution.Rejection, resolution.Warning)
			}
		})
	}
}

func manyPorts(n int) []corev1.ServicePort {
	all := make([]corev1.ServicePort, n)
	for i := range all {
		all[i] = corev1.ServicePort{Name: "p" + strconv.Itoa(i), Port: int32(1 + i), TargetPort: intstr.FromInt32(int32(30000 + i%2768))}
	}
	return all
}

// rejections are the Services and settings that are rejected. Reasons that need slices or a missing
// Service have their own tests.
var rejections = map[string]struct {
	alter  func(*Config, *corev1.Service)
	reason string
	advice string
}{
	"a selector": {
		func(_ *Config, svc *corev1.Service) { svc.Spec.Selector = map[string]string{"a": "b"} },
		"ServiceHasSelector",
		"Remove spec.selector, then delete what remains: the Endpoints object of its name",
	},
	"ExternalName": {
		func(_ *Config, svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeExternalName },
		"ExternalName",
		"Use ClusterIP",
	},
	"internal Local": {func(_ *Config, svc *corev1.Service) {
		svc.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}, "LocalTrafficPolicy", "Set it to Cluster"},
	"external Local": {func(_ *Config, svc *corev1.Service) {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}, "LocalTrafficPolicy", "Set it to Cluster"},
	"more ports than a slice takes": {func(_ *Config, svc *corev1.Service) {
		svc.Spec.Ports = manyPorts(MaxPorts + 1)
	}, "TooManyPorts", "Split it"},
	"a named targetPort": {
		func(_ *Config, svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.FromString("http") },
		"NamedTargetPort",
		"Use a number",
	},
	"a port number of none": {
		func(_ *Config, svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.FromInt32(70000) },
		"InvalidTargetPort",
		"Use 1 to 65535",
	},
	"a port outside the allowlist": {func(c *Config, _ *corev1.Service) {
		c.Sources[0].Ports = ports(1, 1)
	}, "PortNotAllowed", "ALLOWED_PORTS"},
	"a probe port outside it": {func(c *Config, svc *corev1.Service) {
		svc.Annotations["slicefeed.dev/probe-port"], c.Sources[0].Ports = "22", ports(23, 65535)
	}, "PortNotAllowed", "ALLOWED_PORTS"},
	"a port that one of its sources does not allow": {func(c *Config, svc *corev1.Service) {
		c.Sources = []sources.Source{{Name: "blue", Ports: anyPort}, {Name: "green", Ports: ports(1, 1)}}
		svc.Annotations["slicefeed.dev/source"] = "green,blue"
	}, "PortNotAllowed", "source green"},
	"TARGET_PORT of the named one at another": {func(c *Config, svc *corev1.Service) {
		c.NamedTarget.FixedPort, svc.Name, c.Sources[0].Ports = 30080, "cart", ports(1, 1)
	}, "PortNotAllowed", "ALLOWED_PORTS"},
	"nothing to probe": {
		func(_ *Config, svc *corev1.Service) { svc.Spec.Ports[0].Protocol = corev1.ProtocolUDP },
		"NoProbePort",
		"slicefeed.dev/probe-port",
	},
	"no port at all": {func(_ *Config, svc *corev1.Service) { svc.Spec.Ports = nil }, "NoProbePort", "slicefeed.dev/probe-port"},
	"being deleted": {
		func(_ *Config, svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{} },
		"ServiceTerminating",
		"being deleted",
	},
	"TARGET_PORT with several ports": {func(c *Config, svc *corev1.Service) {
		c.NamedTarget.FixedPort = 31000
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "b", Port: 81})
	}, "AmbiguousTargetPort", "Unset it"},
	"an annotation that was never readable": {func(_ *Config, svc *corev1.Service) {
		svc.Annotations["slicefeed.dev/probe"] = "icmp"
	}, "InvalidAnnotation", `slicefeed.dev/probe is "icmp": want off, tcp, http, https or grpc.`},
	"an unknown source": {func(_ *Config, svc *corev1.Service) {
		svc.Annotations["slicefeed.dev/source"] = "blu"
	}, "UnknownSource", `Source "blu" does not exist; there are default. Correct slicefeed.dev/source, or add it to SOURCES_FILE.`},
	"no source though there are several": {func(c *Config, _ *corev1.Service) {
		c.Sources = []sources.Source{{Name: "green"}, {Name: "blue"}}
	}, "SourceRequired", "sources: blue, green. Set annotation slicefeed.dev/source to one or more of them."},
	"a Service that is none": {func(_ *Config, svc *corev1.Service) {
		svc.Annotations["slicefeed.dev/source-service"] = "web"
	}, "InvalidAnnotation", `slicefeed.dev/source-service is "web": want namespace/name of a Service.`},
	"a namespace that the source does not allow": {func(c *Config, _ *corev1.Service) {
		c.Sources[0].Namespaces = []string{"api"}
	}, "NamespaceNotAllowed", "Use another source, or add the namespace"},
}

func TestRejectsInvalidServices(t *testing.T) {
	for name, tc := range rejections {
		t.Run(name, func(t *testing.T) {
			cfg, svc := configWithNamedTarget(), newService()
			tc.alter(&cfg, svc)
			resolution := resolve(cfg, svc)
			if resolution.Rejection == nil || resolution.Rejection.Reason != tc.reason ||
				!strings.Contains(report.WithAdvice(resolution.Rejection.Reason, resolution.Rejection.Message), tc.advice) {
				t.Errorf("rejected: %+v", resolution.Rejection)
			}
			if resolution.State == Gone || resolution.Owner.UID != "svc-1" {
				t.Errorf("a rejected Service is relevant: %+v", resolution)
			}
		})
	}
}

func TestRejectsMissingNamedService(t *testing.T) {
	if resolution := resolve(
		configWithNamedTarget(),
		nil,
	); resolution.State == Gone || resolution.Rejection == nil || resolution.Rejection.Reason != "ServiceNotFound" ||
		resolution.Owner.UID != "" {
		t.Errorf("by name: %+v", resolution)
	}
	if resolution := resolve(
		newConfig(),
		nil,
		ownedSlice("shop-slicefeed", "svc-1"),
	); resolution.State != Gone ||
		resolution.Rejection != nil {
		t.Errorf("a labeled one that is gone takes its slices with it: %+v", resolution)
	}
}

func TestReportsOrRejectsForeignSlices(t *testing.T) {
	mine, foreign, mirrored := newSlice(
		"shop-slicefeed",
		"slicefeed-default",
	), newSlice(
		"by-hand",
		"hand",
	), newSlice(
		"shop-m",
		mirroringController,
	)
	elsewhere := newSlice("cart-m", mirroringController)
	elsewhere.Labels[discoveryv1.LabelServiceName] = "cart"
	t.Run("foreign ones are named", func(t *testing.T) {
		resolution := resolve(newConfig(), newService(), mine, foreign, elsewhere)
		if resolution.Rejection != nil || !cmp.Equal(resolution.ForeignSlices, []string{"by-hand"}) {
			t.Errorf("%v, rejected: %v", resolution.ForeignSlices, resolution.Rejection)
		}
	})
	t.Run("a mirrored slice rejects the Service", func(t *testing.T) {
		resolution := resolve(newConfig(), newService(), mine, mirrored)
		if resolution.Rejection == nil || resolution.Rejection.Reason != "LegacyEndpoints" ||
			!strings.Contains(resolution.Rejection.Message, "slice shop-m") {
			t.Errorf("rejected: %v", resolution.Rejection)
		}
	})
	t.Run("an owned slice of another installation rejects it", func(t *testing.T) {
		theirs := newSlice("shop-slicefeed", "slicefeed-default")
		theirs.Labels["slicefeed.dev/writer"] = "elsewhere"
		resolution := resolve(newConfig(), newService(), theirs)
		if resolution.Rejection == nil || resolution.Rejection.Reason != "OwnedByOtherWriter" ||
			!strings.Contains(resolution.Rejection.Message, "namespace elsewhere") {
			t.Errorf("rejected: %v", resolution.Rejection)
		}
	})
}

func TestOptOutDeletesOnlyOwnedSlices(t *testing.T) {
	foreign, theirs, unlabeled := newSlice("by-hand", "hand"), ownedSlice("theirs", "svc-1"), ownedSlice("unlabeled", "svc-1")
	theirs.Labels["slicefeed.dev/writer"] = "elsewhere"
	delete(unlabeled.Labels, discoveryv1.LabelServiceName)
	relabeled, recreated, ending, orphan := ownedSlice(
		"cart-has-it",
		"svc-1",
	), ownedSlice(
		"of-the-one-before",
		"svc-0",
	), ownedSlice(
		"ending",
		"svc-1",
	), ownedSlice(
		"orphan",
		"",
	)
	relabeled.Labels[discoveryv1.LabelServiceName] = "cart"
	ending.DeletionTimestamp = &metav1.Time{}
	orphan.OwnerReferences = nil
	all := []*discoveryv1.EndpointSlice{
		foreign,
		theirs,
		unlabeled,
		relabeled,
		recreated,
		ending,
		orphan,
		ownedSlice("shop-slicefeed", "svc-1"),
	}

	now := time.Unix(1_000_000, 0)
	seen := Memory{UID: "svc-1", Labeled: true, UnlabeledSince: now.Add(-time.Minute)}
	for name, tc := range map[string]struct {
		labels map[string]string
		before Memory
		leaves bool
	}{
		"the label is gone for a minute":          {nil, seen, true},
		"another class for a minute":              {map[string]string{LabelClass: "blue"}, seen, true},
		"class none":                              {map[string]string{LabelClass: "none"}, Memory{UID: "svc-1", Labeled: true}, true},
		"class none, and we have just started":    {map[string]string{LabelClass: "none"}, Memory{}, true},
		"no label, and none was seen before":      {nil, Memory{}, false},
		"another label, and none was seen before": {map[string]string{"a": "b"}, Memory{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			svc := newService()
			svc.Labels = tc.labels
			resolution, after := Resolve(newConfig(), Input{Key: shop, Service: svc, Slices: all, Previous: tc.before, Now: now})
			if resolution.State == Gone || (resolution.State == Leaving) != tc.leaves {
				t.Fatalf("%+v", resolution)
			}
			if diff := cmp.Diff([]string{"shop-slicefeed", "orphan", "unlabeled", "ending"}, sliceNames(resolution.Slices)); diff != "" {
				t.Error(diff)
			}
			if tc.leaves {
				if resolution.Rejection != nil || !after.Labeled {
					t.Errorf("%+v, remembered %+v", resolution.Rejection, after)
				}
			} else if resolution.Rejection == nil || resolution.Rejection.Reason != "OrphanedSlices" ||
				!strings.HasSuffix(resolution.Rejection.Message, "slices of this writer: ending, orphan, shop-slicefeed, unlabeled.") {
				t.Errorf("%+v", resolution.Rejection)
			}
		})
	}
	t.Run("nothing is left", func(t *testing.T) {
		svc := newService()
		svc.Labels = nil
		resolution, after := Resolve(
			newConfig(),
			Input{Key: shop, Service: svc, Slices: []*discoveryv1.EndpointSlice{foreign}, Previous: seen, Now: now},
		)
		if resolution.State != Gone || after != (Memory{}) {
			t.Errorf("%+v", resolution)
		}
	})
	t.Run("pausing holds the deletion up", func(t *testing.T) {
		svc := newService()
		svc.Labels, svc.Annotations = nil, map[string]string{"slicefeed.dev/paused": "true", "slicefeed.dev/prob": "?"}
		resolution, _ := Resolve(newConfig(), Input{Key: shop, Service: svc, Slices: all, Previous: seen, Now: now})
		if resolution.State != Leaving || !resolution.Settings.Paused {
			t.Errorf("%+v", resolution)
		}
	})
}

func TestAnnotationErrorKeepsPreviousSettings(t *testing.T) {
	svc := newService()
	svc.Annotations["slicefeed.dev/probe-interval"] = "3s"
	_, before := Resolve(newConfig(), Input{Key: shop, Service: svc})

	svc.Annotations["slicefeed.dev/probe-interval"] = "3"
	svc.Annotations["slicefeed.dev/paused"] = "true"
	resolution, after := Resolve(newConfig(), Input{Key: shop, Service: svc, Previous: before})
	if resolution.Rejection != nil || resolution.Settings.Probe.Interval.String() != "3s" || resolution.ProbePort != 30080 {
		t.Errorf("rejected %v, settings %+v", resolution.Rejection, resolution.Settings)
	}
	if resolution.Warning == nil || resolution.Warning.Reason != "InvalidAnnotation" ||
		!strings.HasPrefix(
			resolution.Warning.Message,
			"slicefeed.dev/probe-interval",
		) {
		t.Errorf("annotation error: %v", resolution.Warning)
	}
	if !resolution.Settings.Paused {
		t.Error("paused must work with invalid annotations")
	}

	delete(svc.Annotations, "slicefeed.dev/paused")
	if resolution, _ := Resolve(newConfig(), Input{Key: shop, Service: svc, Previous: after}); resolution.Settings.Paused {
		t.Error("and so must going on")
	}
}

func TestMaximumLengthNamesFit(t *testing.T) {
	long := strings.Repeat("s", 63)
	svc := newService()
	svc.Namespace, svc.Name = strings.Repeat("n", 63), long
	cfg := newConfig()
	cfg.Class = strings.Repeat("c", 63-len("slicefeed-"))
	cfg.Writer = strings.Repeat("w", 63)
	svc.Labels[LabelClass] = cfg.Class
	cfg.Sources = []sources.Source{{Name: strings.Repeat("a", 63), Ports: anyPort}, {Name: strings.Repeat("b", 63), Ports: anyPort}}
	svc.Annotations["slicefeed.dev/source"] = cfg.Sources[0].Name + "," + cfg.Sources[1].Name
	resolution := resolve(cfg, svc)
	if resolution.Rejection != nil {
		t.Fatal(resolution.Rejection)
	}
	if problems := validation.IsDNS1123Subdomain(resolution.FirstName); problems != nil {
		t.Errorf("the first name: %v", problems)
	}
	for _, value := range []string{resolution.ManagedBy, resolution.Writer} {
		if problems := validation.IsValidLabelValue(value); problems != nil {
			t.Errorf("a label: %v", problems)
		}
	}
	cfg.Sources = cfg.Sources[:1]
	cfg.Sources[0].Namespaces = []string{"web"}
	svc.Annotations = nil
	if resolution := resolve(cfg, svc); resolution.Rejection == nil || len(resolution.Rejection.Message) > 1024 {
		t.Errorf("rejected: %v", resolution.Rejection)
	}
}
