package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/testkit"
	"github.com/slicefeed/slicefeed/services/writer/reconciler"
)

// kubeconfig is of a cluster that is never called.
const kubeconfig = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a, namespace: slicefeed}}],
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: a, user: {token: t}}]}`

func TestMetricsAreDocumented(t *testing.T) {
	files := testkit.NewLinkFiles(t)
	cluster := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(cluster, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := testkit.LoadEnv[Config](testkit.WriterEnv(), map[string]string{
		"TARGET_KUBECONFIG":    cluster,
		"TLS_CERT_FILE":        files.Cert,
		"TLS_KEY_FILE":         files.Key,
		"TLS_PEER_CA_FILE":     files.CA,
		"LISTEN_ADDRESS":       ":9443",
		"LISTEN_CERT_FILE":     files.Cert,
		"LISTEN_KEY_FILE":      files.Key,
		"CLIENT_CA_FILE":       files.CA,
		"ALLOWED_CLIENTS_FILE": files.Clients,
	})
	if err != nil {
		t.Fatal(err)
	}
	writer, err := buildWriter(cfg, "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	reconciler.New(writer.reconcilerConfig, nil, nil) // registers the metrics of decisions, as Run does
	testkit.CheckMetrics(t, "../../../docs/reference/metrics.md", "writer", writer.registry)
}
