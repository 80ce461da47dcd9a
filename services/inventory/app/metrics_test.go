package app

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
)

// kubeconfig names a cluster that the test never connects to.
const kubeconfig = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: a, user: {token: t}}]}`

// build returns an inventory that does not run, with settings beside those that every inventory needs.
func build(t *testing.T, source map[string]string) *inventory {
	t.Helper()
	files := testkit.NewLinkFiles(t)
	env := testkit.InventoryEnv()
	maps.Copy(env, map[string]string{
		"TLS_CERT_FILE": files.Cert, "TLS_KEY_FILE": files.Key, "TLS_PEER_CA_FILE": files.CA, "ALLOWED_CLIENTS_FILE": files.Clients,
	})
	cfg, err := testkit.LoadEnv[Config](env, source)
	if err != nil {
		t.Fatal(err)
	}
	component, err := buildInventory(cfg, "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return component
}

// exportingEnv has the settings of an inventory that exports Services of a cluster that it never connects to.
func exportingEnv(t *testing.T) map[string]string {
	t.Helper()
	env := testkit.SourceEnv("service", "SOURCE_SERVICE_SELECTOR", "export=yes")
	env["SECURED_KUBECONFIG"] = unreachableCluster(t)
	return env
}

func unreachableCluster(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMetricsAreDocumented(t *testing.T) {
	var all []*prometheus.Registry
	for _, source := range []map[string]string{
		{"SECURED_KUBECONFIG": unreachableCluster(t)},
		testkit.SourceEnv("static", "INVENTORY_STATIC", "[]"),
		exportingEnv(t),
	} {
		all = append(all, build(t, source).registry)
	}
	testkit.CheckMetrics(t, "../../../docs/reference/metrics.md", "inventory", all...)
}

// servesTwoServices is an API server that has shop/web and shop/api, and nothing else.
func servesTwoServices(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") != "" || r.URL.Path != "/api/v1/services":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case query.Get("watch") != "":
		<-r.Context().Done()
	default:
		_, _ = io.WriteString(w, `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[
			{"metadata":{"namespace":"shop","name":"web"}},{"metadata":{"namespace":"shop","name":"api"}}]}`)
	}
}

func TestAnExportedServiceHasFewSeriesAndAnyOtherHasNone(t *testing.T) {
	cluster := httptest.NewServer(http.HandlerFunc(servesTwoServices))
	defer cluster.Close()
	env := exportingEnv(t)
	if err := os.WriteFile(
		env["SECURED_KUBECONFIG"],
		[]byte(strings.Replace(kubeconfig, "https://127.0.0.1:1", cluster.URL, 1)),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	exporting := build(t, env)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	defer exporting.runSources(stopped) // ends the stages of both Services, after their release
	client := feed.Client{SAN: "writer", Services: []string{"*/*"}}
	series := map[string]int{}
	for service, reason := range map[string]string{
		"shop/other": "is not exported", "shop/web": "no full verification", "shop/api": "no full verification",
	} {
		set, release, err := exporting.sets.Acquire(client, service)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		for now, changed := set.Status(); !strings.Contains(now.Membership.Reason, reason); now, changed = set.Status() {
			<-changed
		}
	}
	families, err := exporting.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "service" {
					series[label.GetValue()]++
				}
			}
		}
	}
	want := map[string]int{"shop/web": 20, "shop/api": 20}
	if !maps.Equal(series, want) {
		t.Errorf("%v series, want %v", series, want)
	}
}
