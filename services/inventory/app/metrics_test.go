package app

import (
	"context"
	"flag"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/metricstest"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/config/configtest"
	"github.com/slicefeed/slicefeed/services/inventory/nodeserver"
)

// kubeconfig names a cluster that the test never connects to.
const kubeconfig = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: a, user: {token: t}}]}`

var update = flag.Bool("update", false, "write the tables into docs/reference/metrics.md")

// build returns an inventory that does not run, with settings beside those that every inventory needs.
func build(t *testing.T, source map[string]string) *inventory {
	t.Helper()
	files := metricstest.NewLinkFiles(t)
	env := configtest.Env()
	maps.Copy(env, source)
	maps.Copy(env, map[string]string{
		"TLS_CERT_FILE": files.Cert, "TLS_KEY_FILE": files.Key, "TLS_PEER_CA_FILE": files.CA, "ALLOWED_CLIENTS_FILE": files.Clients,
	})
	cfg := &config.Config{}
	if err := settings.Load(nil, func(name string) string { return env[name] }, cfg); err != nil {
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
	env := configtest.SourceEnv("service", "SOURCE_SERVICE_SELECTOR", "export=yes")
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
		configtest.SourceEnv("static", "INVENTORY_STATIC", "[]"),
		exportingEnv(t),
	} {
		all = append(all, build(t, source).registry)
	}
	metricstest.CheckMetrics(t, "../../../docs/reference/metrics.md", "inventory", *update, all...)
}

func TestAnExportedServiceHasFewSeries(t *testing.T) {
	exporting := build(t, exportingEnv(t))
	stopped, stop := context.WithCancel(t.Context())
	stop()
	defer exporting.runSources(stopped) // ends the stages of both Services, after their release
	client := nodeserver.Client{Name: "writer", AllowsService: func(string) bool { return true }}
	series := map[string]int{}
	for _, service := range []string{"shop/web", "shop/api"} {
		_, release, err := exporting.sets.Acquire(client, service)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
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
