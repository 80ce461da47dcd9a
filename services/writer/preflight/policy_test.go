package preflight

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
)

func TestPolicyCheckOnlyDryRuns(t *testing.T) {
	denied := func(why string) error {
		return apierrors.NewForbidden(
			discoveryv1.Resource("endpointslices"),
			"it",
			errors.New("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: "+why),
		)
	}
	isOutside := func(slice *discoveryv1.EndpointSlice) bool {
		return strings.HasPrefix(slice.Endpoints[0].Addresses[0], "192.0.2.")
	}
	for _, tt := range []struct {
		name  string
		set   map[string]string
		admit func(*discoveryv1.EndpointSlice) error
		want  string
	}{
		{"it denies only what is outside", nil, func(s *discoveryv1.EndpointSlice) error {
			if isOutside(s) {
				return denied("outside")
			}
			return nil
		}, "ok|192.0.2.1 was denied"},
		{"a webhook does the same", nil, func(s *discoveryv1.EndpointSlice) error {
			if isOutside(s) {
				return apierrors.NewBadRequest(`admission webhook "w" denied the request: no`)
			}
			return nil
		}, "ok"},
		{"no policy", nil, func(*discoveryv1.EndpointSlice) error { return nil }, "WARN|192.0.2.1, outside|was accepted|deploy/manifests/writer-policy.yaml|docs/design/policy.md"},
		{"it denies everything", nil, func(*discoveryv1.EndpointSlice) error { return denied("namespace web") }, "FAIL|denied too|namespace web|agree with the writer's settings"},
		{"a CIDR is missing", map[string]string{"SECURED_SUBNET_CIDR": "10.0.1.0/24,10.0.2.0/24"}, func(s *discoveryv1.EndpointSlice) error {
			for _, e := range s.Endpoints {
				if !strings.HasPrefix(e.Addresses[0], "10.0.1.") {
					return denied(e.Addresses[0] + " is outside")
				}
			}
			return nil
		}, "FAIL|10.0.2.1 is outside"},
		{"the end of a port range is missing", nil, func(s *discoveryv1.EndpointSlice) error {
			if isOutside(s) || slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return *p.Port > 32000 }) {
				return denied("no")
			}
			return nil
		}, "FAIL|denied too"},
		{"TARGET_PORT is missing", map[string]string{"TARGET_PORT": "8080"}, func(s *discoveryv1.EndpointSlice) error {
			if isOutside(s) || slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return *p.Port == 8080 }) {
				return denied("no")
			}
			return nil
		}, "FAIL|denied too"},
		{"the other IP family is missing", map[string]string{"SECURED_SUBNET_CIDR": "10.0.1.0/24,fd00::/64"}, func(s *discoveryv1.EndpointSlice) error {
			if isOutside(s) || s.AddressType == discoveryv1.AddressTypeIPv6 {
				return denied("no")
			}
			return nil
		}, "FAIL|denied too"},
		{"more CIDRs than it allows endpoints", map[string]string{"SECURED_SUBNET_CIDR": manySubnets(250)}, func(s *discoveryv1.EndpointSlice) error {
			if isOutside(s) || len(s.Endpoints) > 100 {
				return denied("at most 100 endpoints")
			}
			return nil
		}, "ok"},
		{"the last of many CIDRs is missing", map[string]string{"SECURED_SUBNET_CIDR": manySubnets(250)}, func(s *discoveryv1.EndpointSlice) error {
			if isOutside(s) || s.Endpoints[len(s.Endpoints)-1].Addresses[0] == "10.0.249.1" {
				return denied("no")
			}
			return nil
		}, "FAIL|denied too"},
		{"API server error", nil, func(*discoveryv1.EndpointSlice) error { return apierrors.NewInternalError(errors.New("etcd is down")) }, "FAIL|etcd is down"},
		{"an allowlist of everything", map[string]string{"SECURED_SUBNET_CIDR": "0.0.0.0/1,128.0.0.0/1"}, func(*discoveryv1.EndpointSlice) error { return nil }, "WARN|no address is outside"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pc, client := newTestChecker(t, tt.set)
			client.PrependReactor("create", "endpointslices", func(a ktesting.Action) (bool, runtime.Object, error) {
				create := a.(ktesting.CreateActionImpl) //nolint:forcetypeassert // by its verb
				if !slices.Equal(create.CreateOptions.DryRun, []string{metav1.DryRunAll}) {
					t.Errorf("not a dry run: %+v", create)
				}
				slice := create.Object.(*discoveryv1.EndpointSlice) //nolint:forcetypeassert // by its resource
				return true, slice, tt.admit(slice)
			})
			detail, err := pc.checkPolicy(t.Context())
			wantOutcome(t, tt.want, detail, err)
		})
	}
}

func manySubnets(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("10.0.%d.0/24", i)
	}
	return strings.Join(all, ",")
}

func TestPolicyCheckCoversAllWritableNamespaces(t *testing.T) {
	type try struct{ Namespace, ManagedBy, Address string }
	for _, tt := range []struct {
		name    string
		set     map[string]string
		objects []runtime.Object
		denies  func(try) bool
		want    string
		tried   []try
	}{
		{
			"an outside address in each namespace, an allowed one where there is a Service", twoSources(t, labeledOnly("web,depot,yard")),
			[]runtime.Object{newService(func(s *corev1.Service) {
				labeled("web", "a")(s)
				s.Annotations = map[string]string{"slicefeed.dev/source": "blue"}
			}), newService(labeled("depot", "b"))},
			func(a try) bool { return a.Address == "192.0.2.1" }, "ok|192.0.2.1 was denied, and one inside all allowlists of SOURCES_FILE was not",
			[]try{
				{"depot", "slicefeed-default", "192.0.2.1"},
				{"web", "slicefeed-default", "192.0.2.1"},
				{"yard", "slicefeed-default", "192.0.2.1"},
				{"depot", "slicefeed-default", "10.0.1.1"},
				{"web", "slicefeed-default", "10.0.1.1"},
				{"web", "slicefeed-default", "fd00::1"},
			},
		},
		{"with TARGET_MANAGED_BY", map[string]string{"TARGET_MANAGED_BY": "old"}, []runtime.Object{newService(nil)}, func(a try) bool { return a.Address == "192.0.2.1" }, "ok|SECURED_SUBNET_CIDR", []try{
			{"slicefeed", "slicefeed-default", "192.0.2.1"}, {"web", "old", "192.0.2.1"}, {"web", "old", "10.0.1.1"},
		}},
		{"all namespaces: where the Services are, and the writer's own", labeledOnly("*"), []runtime.Object{newService(labeled("depot", "b"))}, func(a try) bool { return a.Address == "192.0.2.1" }, "ok", []try{
			{"depot", "slicefeed-default", "192.0.2.1"}, {"slicefeed", "slicefeed-default", "192.0.2.1"}, {"depot", "slicefeed-default", "10.0.1.1"},
		}},
		{"a policy in some namespaces only", labeledOnly("web,depot,yard"), nil, func(a try) bool { return a.Namespace == "web" }, "WARN|was accepted|the Services of depot, yard anywhere", []try{
			{"depot", "slicefeed-default", "192.0.2.1"}, {"web", "slicefeed-default", "192.0.2.1"}, {"yard", "slicefeed-default", "192.0.2.1"},
		}},
		{"a policy that denies everything in one namespace", labeledOnly("web,depot"), []runtime.Object{newService(labeled("depot", "b"))}, func(a try) bool { return a.Namespace == "depot" || a.Address == "192.0.2.1" }, "FAIL|write it in depot is denied too", []try{
			{"depot", "slicefeed-default", "192.0.2.1"}, {"web", "slicefeed-default", "192.0.2.1"}, {"depot", "slicefeed-default", "10.0.1.1"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pc, client := newTestChecker(t, tt.set, tt.objects...)
			if _, err := pc.findServices(t.Context()); err != nil && tt.objects != nil {
				t.Fatal(err)
			}
			var tried []try
			client.PrependReactor("create", "endpointslices", func(a ktesting.Action) (bool, runtime.Object, error) {
				slice := a.(ktesting.CreateAction).GetObject().(*discoveryv1.EndpointSlice) //nolint:forcetypeassert // by its verb and resource
				attempt := try{slice.Namespace, slice.Labels[discoveryv1.LabelManagedBy], slice.Endpoints[0].Addresses[0]}
				tried = append(tried, attempt)
				if tt.denies(attempt) {
					return true, nil, apierrors.NewForbidden(
						discoveryv1.Resource("endpointslices"),
						"it",
						errors.New("ValidatingAdmissionPolicy 'p' denied request: no"),
					)
				}
				return true, slice, nil
			})
			detail, err := pc.checkPolicy(t.Context())
			wantOutcome(t, tt.want, detail, err)
			if d := cmp.Diff(tt.tried, tried); d != "" {
				t.Errorf("tried (-want +got):\n%s", d)
			}
		})
	}
}

func TestAllowlistExcludesAPIServer(t *testing.T) {
	for _, tt := range []struct {
		name, cidr, ports, at, want string
	}{
		{"outside", "10.0.1.0/24", "30000-32767", "10.0.0.1:6443", "ok|does not contain"},
		{"inside, port not allowed", "10.0.0.0/16", "30000-32767", "10.0.0.1:6443", "WARN|10.0.0.1|except to port 6443"},
		{"inside, port allowed", "10.0.0.0/16", "1024-65535", "10.0.0.1:6443", "FAIL|10.0.0.1:6443|narrow"},
		{"inside, in IPv6", "fd00::/64", "443", "[fd00::1]:443", "FAIL|[fd00::1]:443"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pc, _ := newTestChecker(t, map[string]string{"SECURED_SUBNET_CIDR": tt.cidr, "ALLOWED_PORTS": tt.ports})
			pc.cluster.Host = "https://" + tt.at
			detail, err := pc.sources[0].checkAllowlist(t.Context())
			wantOutcome(t, tt.want, detail, err)
		})
	}
	pc, _ := newTestChecker(t, map[string]string{"SECURED_SUBNET_CIDR": "10.0.0.0/16", "TARGET_PORT": "6443"})
	detail, err := pc.sources[0].evaluateAllowlist([]netip.Addr{netip.MustParseAddr("10.0.0.1")}, "6443")
	wantOutcome(t, "FAIL|10.0.0.1:6443", detail, err)
	pc, _ = newTestChecker(t, nil)
	pc.cluster.Host = "https://nowhere.invalid:6443"
	detail, err = pc.sources[0].checkAllowlist(t.Context())
	wantOutcome(t, "WARN|cannot be looked up", detail, err)
}

func TestAllowlistCheckNamesOverlappingSources(t *testing.T) {
	pc, _ := newTestChecker(t, twoSources(t, nil))
	server := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	detail, err := pc.sources[0].evaluateAllowlist(server, "6443")
	wantOutcome(t, "ok|cidrs of blue in SOURCES_FILE=[10.0.1.0/24] does not contain this cluster's API server", detail, err)
	if strings.Contains(detail, "also allowed") {
		t.Errorf("allowlists that do not overlap: %s", detail)
	}
	pc.sources[1].CIDRs = []netip.Prefix{netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("10.0.1.128/25")}
	for i, want := range []string{"also allowed for green", "also allowed for blue"} {
		detail, err := pc.sources[i].evaluateAllowlist(server, "6443")
		wantOutcome(t, "ok|"+want, detail, err)
	}
}
