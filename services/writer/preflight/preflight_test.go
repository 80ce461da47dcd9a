package preflight

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/identity"
	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/writer/config/configtest"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTestChecker returns a checker of a cluster with these objects.
func newTestChecker(t *testing.T, set map[string]string, objects ...runtime.Object) (*checker, *fake.Clientset) {
	t.Helper()
	cfg, err := configtest.Load(set)
	if err != nil {
		t.Fatal(err)
	}
	configured, err := cfg.LoadSources()
	if err != nil {
		t.Fatal(err)
	}
	pc, err := newOfflineChecker(cfg, "slicefeed", configured)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(objects...)
	pc.client = client
	return pc, client
}

// twoSources is a configuration with the sources blue, and green for namespace web only.
func twoSources(t *testing.T, set map[string]string) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sources.yaml")
	text := `
sources:
- {name: blue, address: "blue.example:9443", san: blue.example, cidrs: [10.0.1.0/24]}
- {name: green, address: "green.example:9443", san: green.example, caFile: green.pem, cidrs: [10.0.2.0/24, "fd00::/64"], namespaces: [web], ports: [8080]}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"SOURCES_FILE": path, "INVENTORY_ADDRESS": "", "INVENTORY_SAN": "", "SECURED_SUBNET_CIDR": ""}
	maps.Copy(all, set)
	return all
}

// labeledOnly has no named target and watches these namespaces.
func labeledOnly(namespaces string) map[string]string {
	return map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": "", "WATCH_NAMESPACES": namespaces}
}

// wantOutcome checks a result against "MARK|text|text": the mark it gets, and texts it contains.
func wantOutcome(t *testing.T, want, detail string, err error) {
	t.Helper()
	mark := "ok"
	var text strings.Builder
	if err != nil {
		mark, detail = "FAIL", err.Error()
		failed := preflight.Run(
			t.Context(),
			&text,
			command.Table,
			[]preflight.Check{{Name: "it", Run: func(context.Context) (string, error) { return "", err }}},
		)
		if failed == nil {
			mark = "WARN"
		}
	}
	parts := strings.Split(want, "|")
	if mark != parts[0] {
		t.Errorf("got %s, want %s: %s", mark, parts[0], detail)
	}
	for _, p := range parts[1:] {
		if !strings.Contains(detail, p) {
			t.Errorf("got no %q in: %s", p, detail)
		}
	}
}

func TestRequiredPermissionsMatchUse(t *testing.T) {
	reads := []string{
		"list services in web", "watch services in web",
		"get endpointslices in web", "list endpointslices in web", "watch endpointslices in web",
	}
	for _, tt := range []struct {
		set  map[string]string
		want []string
	}{
		{nil, append(slices.Clone(reads), "create endpointslices in web", "update endpointslices in web", "delete endpointslices in web",
			"create events in web", "patch events in web", "create leases in slicefeed",
			"get leases slicefeed-default in slicefeed", "update leases slicefeed-default in slicefeed")},
		{map[string]string{"STORE_KIND": "memory"}, reads},
	} {
		pc, _ := newTestChecker(t, tt.set)
		pc.targets.Namespaces = []string{"web"}
		var got []string
		for _, p := range pc.requiredPermissions() {
			got = append(got, p.String())
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%v (-want +got):\n%s", tt.set, d)
		}
	}
}

func TestPermissionsCoverWatchedNamespaces(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  map[string]string
		want string // of the permission to list Services
		wide bool   // it needs what would be too much otherwise
	}{
		{"its own namespace and the target's by default", nil, "list services in slicefeed, web", false},
		{"the target's and those of WATCH_NAMESPACES", map[string]string{"WATCH_NAMESPACES": "shop,depot"}, "list services in depot, shop, web", false},
		{"many", labeledOnly("a,b,c,d"), "list services in 4 namespaces", false},
		{"everywhere", map[string]string{"WATCH_NAMESPACES": "*"}, "list services in all namespaces", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pc, _ := newTestChecker(t, tt.set)
			if got := pc.permissions(servicesAPI, "list")[0].String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if !slices.ContainsFunc(pc.checks(), func(c preflight.Check) bool { return c.Name == tt.want }) {
				t.Errorf("%q is not checked", tt.want)
			}
			writesAnywhere := func(p preflight.Permission) bool { return p.String() == "update endpointslices in all namespaces" }
			if slices.ContainsFunc(pc.excessPermissions(), writesAnywhere) == tt.wide {
				t.Errorf("writing slices everywhere is excess: %v", !tt.wide)
			}
		})
	}
}

func TestChecksRunAfterTheirDependencies(t *testing.T) {
	for _, set := range []map[string]string{nil, {"STORE_KIND": "memory"}, labeledOnly("*"), twoSources(t, nil), twoSources(t, labeledOnly("a,b,c,d"))} {
		pc, _ := newTestChecker(t, set)
		made := map[string]bool{}
		for _, c := range pc.checks() {
			for _, n := range c.DependsOn {
				if !made[n] {
					t.Errorf("%v: %s depends on %q, which is not checked before", set, c.Name, n)
				}
			}
			if made[c.Name] {
				t.Errorf("%v: %s is checked twice", set, c.Name)
			}
			made[c.Name] = true
		}
		if made["admission policy"] == (set["STORE_KIND"] == "memory") {
			t.Errorf("%v: %v", set, slices.Sorted(maps.Keys(made)))
		}
	}
}

func TestEachSourceHasItsOwnChecks(t *testing.T) {
	pc, _ := newTestChecker(t, twoSources(t, nil))
	var got []string
	for _, c := range pc.checks() {
		if !strings.Contains(c.Name, " in ") { // those of permissions
			got = append(got, c.Name)
		}
	}
	want := []string{
		"certificate", "certificate key", "peer CA", "green: peer CA",
		"blue: inventory", "blue: initial sync", "green: inventory", "green: initial sync",
		"API server", "API server clock", "excess permissions", "Services", "admission policy",
		"blue: allowlist", "green: allowlist", "blue: probes", "green: probes",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestSourceChecksNameTheKeysOfSourcesFile(t *testing.T) {
	pc, _ := newTestChecker(t, twoSources(t, nil))
	detail, err := pc.sources[1].explainCallError(status.Error(codes.DeadlineExceeded, "context deadline exceeded"), nil, false)
	wantOutcome(t, "FAIL|check address of green in SOURCES_FILE", detail, err)
	detail, err = pc.sources[1].evaluateAllowlist([]netip.Addr{netip.MustParseAddr("fd00::7")}, "8080")
	wantOutcome(
		t,
		"FAIL|cidrs of green in SOURCES_FILE=[10.0.2.0/24 fd00::/64]|[fd00::7]:8080|narrow cidrs of green in SOURCES_FILE or ports of green",
		detail,
		err,
	)
	// Neither its own ports nor ALLOWED_PORTS have this port.
	detail, err = pc.sources[0].evaluateAllowlist([]netip.Addr{netip.MustParseAddr("10.0.1.7")}, "8080")
	wantOutcome(t, "WARN|10.0.1.7|except to port 8080", detail, err)
}

func TestExplainCallError(t *testing.T) {
	pc, _ := newTestChecker(t, nil)
	sc := pc.sources[0]
	dialing := errors.New(`connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:9443: connect: connection refused"`)
	unavailable := status.Error(codes.Unavailable, "connection error")
	for _, tt := range []struct {
		name      string
		err       error
		handshake error // nil: none, or it succeeded
		byServer  bool
		want      string
	}{
		{"success", nil, nil, true, "ok|spiffe://example.org/slicefeed/inventory at inventory.example:9443"},
		{"no observation", status.Error(codes.Unavailable, "no observation yet"), nil, true, "ok"},
		{"denied", status.Error(codes.PermissionDenied, "client is not allowed"), nil, true, "FAIL|client is not allowed|ALLOWED_CLIENTS_FILE"},
		{"denied after an earlier handshake failed", status.Error(codes.PermissionDenied, "client is not allowed"), io.EOF, true, "FAIL|client is not allowed|ALLOWED_CLIENTS_FILE"},
		{"another service", status.Error(codes.Unimplemented, "unknown service"), nil, true, "FAIL|is the address of an inventory"},
		{"no connection", status.Error(codes.Unavailable, dialing.Error()), nil, false, "FAIL|connection refused|check INVENTORY_ADDRESS"},
		{"no response", status.Error(codes.DeadlineExceeded, "context deadline exceeded"), nil, false, "FAIL|check INVENTORY_ADDRESS"},
		{"the connection ends in the handshake", unavailable, io.EOF, false, "FAIL|EOF; check INVENTORY_ADDRESS"},
		{"another server", unavailable, fmt.Errorf(`%w, want "b", got "a"`, identity.ErrOtherServer), false, `FAIL|want "b"|check INVENTORY_SAN`},
		{"another CA", unavailable, x509.UnknownAuthorityError{}, false, "FAIL|unknown authority; TLS_PEER_CA_FILE must contain the CA that signs the inventory's"},
		{"no TLS", unavailable, tls.RecordHeaderError{Msg: "first record"}, false, "FAIL|first record|a server without TLS"},
		{"rejected", unavailable, fmt.Errorf("EOF; %w", identity.ErrRejected), false, "FAIL|EOF|rejects the writer's certificate"},
		{"an error with advice", unavailable, &identity.HandshakeError{Cause: errors.New("expired"), Advice: "renew it"}, false, "FAIL|expired; renew it"},
	} {
		handshake, explained := errors.AsType[*identity.HandshakeError](tt.handshake)
		if tt.handshake != nil && !explained {
			handshake = &identity.HandshakeError{Cause: tt.handshake}
		}
		detail, err := sc.explainCallError(tt.err, handshake, tt.byServer)
		t.Run(tt.name, func(t *testing.T) { wantOutcome(t, tt.want, detail, err) })
	}
}

func TestEvaluateSnapshot(t *testing.T) {
	synced := subscriber.PartStatus{State: subscriber.Synced}
	ready, draining := &subscriber.Member{State: subscriber.Ready}, &subscriber.Member{State: subscriber.Draining}
	for _, tt := range []struct {
		name     string
		snapshot subscriber.Snapshot
		want     string
	}{
		{"synced", subscriber.Snapshot{Members: []*subscriber.Member{ready, draining}, Membership: synced, Addresses: synced}, "ok|members: 2, ready: 1; membership synced, addresses synced"},
		{"a part is not synced", subscriber.Snapshot{Members: []*subscriber.Member{ready}, Membership: synced, Addresses: subscriber.PartStatus{Reason: "cloud: 503"}}, "WARN|addresses degraded (cloud: 503)"},
		{"no members", subscriber.Snapshot{Membership: synced, Addresses: synced}, "WARN|members: 0|check the source of the inventory"},
		{"none ready", subscriber.Snapshot{Members: []*subscriber.Member{draining}, Membership: synced, Addresses: synced}, "WARN|ready: 0"},
	} {
		detail, err := evaluateSnapshot(tt.snapshot)
		t.Run(tt.name, func(t *testing.T) { wantOutcome(t, tt.want, detail, err) })
	}
}

// findCheck returns the check of a name.
func (pc *checker) findCheck(name string) preflight.Check {
	all := pc.checks()
	return all[slices.IndexFunc(all, func(c preflight.Check) bool { return c.Name == name })]
}

// runCheck returns the lines that preflight prints for a check.
func runCheck(t *testing.T, c preflight.Check) []string {
	t.Helper()
	var out strings.Builder
	c.DependsOn = nil
	preflight.Run(t.Context(), &out, command.Table, []preflight.Check{c})
	var all []string
	for line := range strings.Lines(out.String()) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}

// wantPrefixes compares lines with their wanted prefixes.
func wantPrefixes(t *testing.T, want, got []string) {
	t.Helper()
	same := len(want) == len(got)
	for i := 0; same && i < len(want); i++ {
		same = strings.HasPrefix(got[i], want[i])
	}
	if !same {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
