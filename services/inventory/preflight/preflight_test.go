package preflight

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slicefeed/slicefeed/services/internal/preflight"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/config/configtest"
	"github.com/slicefeed/slicefeed/services/inventory/ionos"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPreflightChecksRequiredPermissions(t *testing.T) {
	for _, tt := range []struct {
		set  map[string]string
		want []string
	}{
		{nil, []string{"list nodes", "watch nodes"}},
		{map[string]string{"WORKLOAD": "ingress/app=gateway"}, []string{"list nodes", "watch nodes", "list pods in ingress", "watch pods in ingress"}},
		{configtest.SourceEnv("service", "SOURCE_SERVICE", "shop/web"), []string{"get services web in shop", "list endpointslices in shop", "watch endpointslices in shop"}},
		{
			exporting(t, "[shop/web, shop/api, pay/*]"),
			[]string{"get services in pay", "list endpointslices in pay, shop", "watch endpointslices in pay, shop"},
		},
		{exporting(t, "[shop/web]"), []string{"list endpointslices in shop", "watch endpointslices in shop"}},
		{exporting(t, "[]"), nil},
		{exporting(t, "[shop/web, '*/web']"), []string{"get services in all namespaces", "list endpointslices in all namespaces", "watch endpointslices in all namespaces"}},
	} {
		env := configtest.Env()
		maps.Copy(env, tt.set)
		cfg := &config.Config{}
		if err := settings.Load(nil, func(name string) string { return env[name] }, cfg); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range (&preflightChecker{cfg: cfg}).requiredPermissions() {
			got = append(got, p.String())
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%v (-want +got):\n%s", tt.set, d)
		}
	}
}

// exporting returns the environment of an inventory that exports Services to two clients, of which one may see these.
func exporting(t *testing.T, services string) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "clients.yaml")
	text := "clients:\n- {san: writer.example, role: subscriber, services: " + services + "}\n- {san: other.example, role: operator}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := configtest.SourceEnv("service", "SOURCE_SERVICE_SELECTOR", "export=yes")
	env["ALLOWED_CLIENTS_FILE"] = file
	return env
}

func TestPreflightReportsServicesThatAreNotExported(t *testing.T) {
	service := func(name string, labels map[string]string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}}
	}
	c := &preflightChecker{
		cfg: &config.Config{ExportSelector: "export=yes"},
		cluster: &preflight.Cluster{Client: fake.NewClientset(
			service("web", map[string]string{"export": "yes"}), service("api", nil))},
	}
	c.cfg.ClientsFile = exporting(t, "[shop/web, shop/api, shop/gone, pay/*]")["ALLOWED_CLIENTS_FILE"]
	_, err := c.checkExported(t.Context())
	if want := "do not exist: shop/gone; create them, or correct services in ALLOWED_CLIENTS_FILE; without the labels export=yes: shop/api; give them these labels"; err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := c.checkClients(); err == nil || !strings.Contains(err.Error(), "see no exported Service: other.example") {
		t.Errorf("the client without services is not reported: %v", err)
	}
	c.cfg.ClientsFile = exporting(t, "[shop/web, pay/*]")["ALLOWED_CLIENTS_FILE"]
	if text, err := c.checkExported(t.Context()); err != nil || text != "named in ALLOWED_CLIENTS_FILE: 1, all exported" {
		t.Errorf("%q, %v", text, err)
	}
	client := fake.NewClientset()
	client.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("services"), "web", nil)
	})
	c.cluster = &preflight.Cluster{Client: client, Role: "deploy/slicefeed-inventory"}
	if _, err := c.checkExported(
		t.Context(),
	); err == nil ||
		err.Error() != "permission to get services web in shop missing; bind the role of deploy/slicefeed-inventory to the credential" {
		t.Error(err)
	}
}

func TestCountsReportedNodes(t *testing.T) {
	ready := source.Candidate{Name: "a", State: source.Ready}
	for _, tt := range []struct {
		name string
		news source.Update
		want string
	}{
		{"valid nodes", source.Update{Changed: []source.Candidate{ready, {Name: "b", State: source.NotReady}, {Name: "c", Excluded: source.ControlPlane}}}, "nodes: 3, workers: 2, eligible: 2, eligible and ready: 1"},
		{"an invalid record", source.Update{Changed: []source.Candidate{ready, {Name: "b", Invalid: "no address"}}}, "WARN nodes: 2, workers: 2, eligible: 1, eligible and ready: 1; 1 have invalid data: b (no address); correct them in the source"},
		{"a partial error", source.Update{Changed: []source.Candidate{ready}, PartialError: "two records were ignored"}, "WARN nodes: 1, workers: 1, eligible: 1, eligible and ready: 1; two records were ignored"},
		{"none is ready", source.Update{Changed: []source.Candidate{{Name: "b", State: source.NotReady}}}, "WARN nodes: 1, workers: 1, eligible: 1, eligible and ready: 0; no node is ready; check the nodes"},
		{"nothing", source.Update{}, "WARN no eligible node (nodes: 0, workers: 0, eligible: 0, eligible and ready: 0); nothing would be published; check NODE_SELECTOR and the source"},
	} {
		got, err := summarizeUpdate(tt.news)
		if err != nil {
			got = "WARN " + err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestChecksLANAddresses(t *testing.T) {
	f := &preflightChecker{cfg: &config.Config{Subnets: []settings.Subnet{{}}}}
	if err := f.cfg.Subnets[0].UnmarshalText([]byte("10.0.1.0/24")); err != nil {
		t.Fatal(err)
	}
	block := netip.MustParsePrefix
	for _, tt := range []struct {
		d  ionos.Description
		ok bool
	}{
		{ionos.Description{IPv4: block("10.0.1.0/24")}, true},
		{ionos.Description{IPv4: block("10.0.0.0/16")}, true},
		{ionos.Description{IPv4: block("10.0.1.128/25"), IPv6: block("2001:db8::/64")}, true},
		{ionos.Description{}, true},
		{ionos.Description{IPv4: block("10.0.2.0/24")}, false},
		{ionos.Description{IPv6: block("2001:db8::/64")}, false},
		{ionos.Description{IPv4: block("10.0.1.0/24"), Public: true}, false},
	} {
		if _, err := f.checkLAN(ionos.Pair{LAN: "2"}, tt.d); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt.d, err)
		}
	}
}

// Ten slow pages take longer than the default timeout of a check, and serve reads them.
func TestPreflightAllowsSlowSource(t *testing.T) {
	f := &preflightChecker{cfg: &config.Config{SourceKind: "static"}}
	for _, c := range f.checks() {
		if c.Name == sourceCheckName && c.Timeout < time.Minute {
			t.Errorf("timeout of the source check is %s, want at least a minute", c.Timeout)
		}
	}
}
