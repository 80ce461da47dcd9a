package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
)

// newTestChecker returns a checker of a cluster that responds to dry runs with admit.
func newTestChecker(t *testing.T, set map[string]string, admit func(*discoveryv1.EndpointSlice) error) *checker {
	t.Helper()
	cfg, err := testkit.LoadEnv[Config](testkit.WriterEnv(), set)
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{cfg: cfg, host: "https://10.0.1.7:6443", namespace: "slicefeed"}
	if c.sources, err = cfg.LoadSources(); err == nil {
		c.targets, err = cfg.TargetsConfig(c.namespace, c.sources)
	}
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	client.PrependReactor("create", "endpointslices", func(a ktesting.Action) (bool, runtime.Object, error) {
		create := a.(ktesting.CreateActionImpl)                              //nolint:forcetypeassert // by its verb
		slice := create.Object.DeepCopyObject().(*discoveryv1.EndpointSlice) //nolint:forcetypeassert // by its resource
		if !cmp.Equal(create.CreateOptions.DryRun, []string{"All"}) {
			t.Errorf("a slice was written: %v", slice)
		}
		slice.Namespace = a.GetNamespace()
		return true, slice, admit(slice)
	})
	c.client = client
	return c
}

// twoSources is a configuration with the sources blue and green.
func twoSources(t *testing.T) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sources.yaml")
	text := `
sources:
- {name: blue, address: "blue.example:9443", san: blue.example, cidrs: [10.0.1.0/24]}
- {name: green, address: "green.example:9443", san: green.example, caFile: green.pem, cidrs: [10.0.2.0/24, "fd00::/64"], ports: [8080]}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"SOURCES_FILE": path, "INVENTORY_ADDRESS": "", "INVENTORY_SAN": "", "SECURED_SUBNET_CIDR": ""}
}

// expectResult compares a result with "ok|text" or "FAILED|text|text": the result and texts that it contains.
func expectResult(t *testing.T, want, observed string, err error) {
	t.Helper()
	result := "ok"
	if err != nil {
		var out strings.Builder
		c := preflight.Check{Run: func(context.Context) (string, error) { return "", err }}
		preflight.Run(t.Context(), &out, command.Table, []preflight.Check{c})
		result, observed = strings.Fields(out.String())[0], err.Error()
	}
	parts := strings.Split(want, "|")
	if result != parts[0] {
		t.Errorf("got %s, want %s: %s", result, parts[0], observed)
	}
	for _, part := range parts[1:] {
		if !strings.Contains(observed, part) {
			t.Errorf("got no %q in: %s", part, observed)
		}
	}
}

func TestPreflightChecksWhatIsConfigured(t *testing.T) {
	two := twoSources(t)
	dryRun := maps.Clone(two)
	dryRun["STORE_KIND"] = "memory"
	written := []string{"events", "leases", "leases slicefeed-default"}
	for _, tt := range []struct {
		name string
		set  map[string]string
		want [][]string
	}{
		{"one source", nil, [][]string{{"certificate", "peer CA", "inventory", "allowlist", "API server", "services", "endpointslices"}, written, {"excess permissions", "admission policy"}}},
		{"two sources", two, [][]string{
			{"certificate", "blue: peer CA", "blue: inventory", "blue: allowlist", "green: peer CA", "green: inventory", "green: allowlist"},
			{"API server", "services", "endpointslices"},
			written,
			{"excess permissions", "admission policy"},
		}},
		{"a dry run", dryRun, [][]string{
			{"certificate", "blue: peer CA", "blue: inventory", "blue: allowlist", "green: peer CA", "green: inventory", "green: allowlist"},
			{"API server", "services", "endpointslices", "excess permissions"},
		}},
	} {
		var got []string
		for _, c := range newTestChecker(t, tt.set, nil).checks() {
			got = append(got, c.Name)
		}
		if d := cmp.Diff(slices.Concat(tt.want...), got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

func TestNeedsThePermissionsThatItUses(t *testing.T) {
	labeled := func(set map[string]string) map[string]string {
		maps.Copy(set, map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": ""})
		return set
	}
	for _, tt := range []struct {
		set            map[string]string
		needed, excess []string
	}{
		{
			labeled(map[string]string{"WATCH_NAMESPACES": "shop,web"}),
			[]string{
				"[list watch] services [shop web]", "[get list watch create update delete] endpointslices [shop web]", "[create patch] events [shop web]",
				"[create] leases [slicefeed]", "[get update] leases slicefeed-default [slicefeed]",
			},
			[]string{
				"[update] services [shop web]", "[update] endpoints [shop web]", "[list] secrets [shop web]", "[create] pods [shop web]",
				"[delete] validatingadmissionpolicybindings []", "[update] endpointslices [*]",
			},
		},
		{
			labeled(map[string]string{"WATCH_NAMESPACES": "*", "STORE_KIND": "memory", "SERVICE_IMPORTS": "true"}),
			[]string{"[list watch] services [*]", "[list watch] serviceimports [*]", "[get list watch] endpointslices [*]"},
			[]string{
				"[update] services [*]", "[update] endpoints [*]", "[list] secrets [*]", "[create] pods [*]",
				"[delete] validatingadmissionpolicybindings []", "[update] serviceimports [*]",
			},
		},
	} {
		needed, excess := newTestChecker(t, tt.set, nil).permissions()
		format := func(all []preflight.Permission) (texts []string) {
			for _, p := range all {
				texts = append(texts, fmt.Sprintf("%v %s %v", p.Verbs, strings.TrimSpace(p.Resource+" "+p.Name), p.Namespaces))
			}
			return texts
		}
		if d := cmp.Diff([][]string{tt.needed, tt.excess}, [][]string{format(needed), format(excess)}); d != "" {
			t.Errorf("%v (-want +got):\n%s", tt.set, d)
		}
	}
}

func TestExplainsCallOfInventory(t *testing.T) {
	c := newTestChecker(t, nil, nil)
	unavailable := status.Error(codes.Unavailable, "connection refused")
	for _, tt := range []struct {
		name      string
		err       error
		handshake *link.HandshakeError // nil: none, or it succeeded
		responded bool
		want      string
	}{
		{"success", nil, nil, true, "ok"},
		{"no observation", status.Error(codes.Unavailable, "no observation yet"), nil, true, "ok"},
		{"one that exports Services", status.Error(codes.FailedPrecondition, "service is empty"), nil, true, "ok"},
		{"denied", status.Error(codes.PermissionDenied, "client is not allowed"), &link.HandshakeError{Cause: io.EOF}, true, "FAILED|client is not allowed|ALLOWED_CLIENTS_FILE"},
		{"another service", status.Error(codes.Unimplemented, "unknown service"), nil, true, "FAILED|unknown service; check INVENTORY_ADDRESS"},
		{"no connection", unavailable, nil, false, "FAILED|connection refused; check INVENTORY_ADDRESS"},
		{"no response", status.Error(codes.DeadlineExceeded, "context deadline exceeded"), nil, false, "FAILED|check INVENTORY_ADDRESS"},
		{"a handshake with advice", unavailable, &link.HandshakeError{Cause: errors.New("expired; renew it")}, false, "FAILED|expired; renew it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expectResult(t, tt.want, "", c.explainCall(c.sources[0], tt.err, tt.handshake, tt.responded))
		})
	}
	c = newTestChecker(t, twoSources(t), nil)
	expectResult(t, "FAILED|check address of green in SOURCES_FILE", "", c.explainCall(c.sources[1], unavailable, nil, false))
}

func TestComparesAllowlistWithAPIServer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		set     map[string]string
		address string
		port    uint16
		want    string
	}{
		{"elsewhere", nil, "10.0.0.7", 6443, "ok|[10.0.1.0/24], without this cluster's API server"},
		{"at another port", nil, "10.0.1.7", 6443, "warning|10.0.1.7:6443 in SECURED_SUBNET_CIDR|not allowed; narrow SECURED_SUBNET_CIDR"},
		{"mapped to IPv6", nil, "::ffff:10.0.1.7", 6443, "warning|10.0.1.7:6443 in SECURED_SUBNET_CIDR"},
		{"at an allowed port", map[string]string{"ALLOWED_PORTS": "6000-7000"}, "10.0.1.7", 6443, "FAILED|10.0.1.7:6443 in SECURED_SUBNET_CIDR|narrow SECURED_SUBNET_CIDR"},
		{"at TARGET_PORT", map[string]string{"TARGET_PORT": "6443"}, "10.0.1.7", 6443, "FAILED|10.0.1.7:6443"},
		{"with the ports of a source", twoSources(t), "fd00::7", 8080, "FAILED|[fd00::7]:8080 in cidrs of green in SOURCES_FILE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newTestChecker(t, tt.set, nil)
			observed, err := c.compareAllowlist(c.sources[len(c.sources)-1], []netip.Addr{netip.MustParseAddr(tt.address)}, tt.port)
			expectResult(t, tt.want, observed, err)
		})
	}
	c := newTestChecker(t, nil, nil)
	observed, err := c.checkAllowlist(t.Context(), c.sources[0])
	expectResult(t, "warning|10.0.1.7:6443 in", observed, err)
	c.host = "https://api.invalid"
	observed, err = c.checkAllowlist(t.Context(), c.sources[0])
	expectResult(t, "warning|api.invalid|yourself", observed, err)
}

func TestPolicyMustDenyAnAddressOutside(t *testing.T) {
	deny := func(reason string) func(*discoveryv1.EndpointSlice) error {
		return func(s *discoveryv1.EndpointSlice) error {
			return apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), s.Name, errors.New(reason))
		}
	}
	denied := deny("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: outside")
	for _, tt := range []struct {
		name  string
		set   map[string]string
		admit func(*discoveryv1.EndpointSlice) error
		want  string
	}{
		{"a policy", nil, denied, "ok|denies 192.0.2.1"},
		{"a webhook", nil, deny(`admission webhook "w" denied the request: no`), "ok"},
		{"none", nil, func(*discoveryv1.EndpointSlice) error { return nil }, "warning|192.0.2.1|in namespace slicefeed|deploy/manifests/writer-policy.yaml"},
		{"none in the second namespace", nil, func(s *discoveryv1.EndpointSlice) error {
			if s.Namespace == "web" {
				return nil
			}
			return denied(s)
		}, "warning|in namespace web"},
		{"no permission", nil, deny("User cannot create resource"), "FAILED|in namespace slicefeed|cannot create"},
		{"another address family", map[string]string{"SECURED_SUBNET_CIDR": "fd00::/64"}, denied, "ok|2001:db8::1"},
		{"an address that is allowed", map[string]string{"SECURED_SUBNET_CIDR": "192.0.2.0/24"}, denied, "ok|198.51.100.1"},
		{"everything is allowed", map[string]string{"SECURED_SUBNET_CIDR": "0.0.0.0/1,128.0.0.0/1"}, denied, "warning|narrow it"},
		{"its own label", map[string]string{"TARGET_MANAGED_BY": "me", "WATCH_NAMESPACES": "web"}, func(s *discoveryv1.EndpointSlice) error {
			if s.Labels[discoveryv1.LabelManagedBy] != "me" {
				return nil
			}
			return denied(s)
		}, "ok"},
		{"all namespaces", map[string]string{"WATCH_NAMESPACES": "*"}, func(s *discoveryv1.EndpointSlice) error {
			if s.Namespace != "slicefeed" {
				return nil
			}
			return denied(s)
		}, "ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			observed, err := newTestChecker(t, tt.set, tt.admit).checkPolicy(t.Context())
			expectResult(t, tt.want, observed, err)
		})
	}
}
