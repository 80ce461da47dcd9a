package app

import (
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
)

// kubeconfig names a cluster that the test never connects to.
const kubeconfig = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: a, user: {token: t}}]}`

var update = flag.Bool("update", false, "write the tables into docs/reference/metrics.md")

func TestMetricsAreDocumented(t *testing.T) {
	files := metricstest.NewLinkFiles(t)
	cluster := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(cluster, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	exporting := configtest.SourceEnv("service", "SOURCE_SERVICE_SELECTOR", "export=yes")
	exporting["SECURED_KUBECONFIG"] = cluster
	var all []*prometheus.Registry
	for _, source := range []map[string]string{
		{"SECURED_KUBECONFIG": cluster},
		configtest.SourceEnv("static", "INVENTORY_STATIC", "[]"),
		exporting,
	} {
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
		all = append(all, component.registry)
	}
	metricstest.CheckMetrics(t, "../../../docs/reference/metrics.md", "inventory", *update, all...)
}
