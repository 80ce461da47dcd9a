package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/collector"
	"github.com/slicefeed/slicefeed/services/inventory/records"
)

func TestListPrintsWhatASourceOfKindCommandReads(t *testing.T) {
	apis := fakeAPIs{
		nodes: []corev1.Node{workerNode("one", server1), workerNode("two", server2, func(n *corev1.Node) {
			n.Status.Conditions = nil // a ready one without an address is confirmed first
		})},
		servers: []string{serverJSON(server1, "one", "10.0.1.11"), serverJSON(server2, "two", "192.168.7.2")},
	}
	code, out, errs := runCommand(t, apis.start(t, nil), "list", "-o", "json")
	want := `[{"name":"one","private_ip":"10.0.1.11","ready":true,"worker":true}]`
	if compact := strings.Join(strings.Fields(out), ""); code != 0 || compact != want {
		t.Errorf("exit code %d, %s, want %s\n%s", code, compact, want, errs)
	}
	if err := records.Check(out); err != nil {
		t.Errorf("its output cannot be read as records: %v", err)
	}
	code, out, _ = runCommand(t, apis.start(t, nil), "list")
	if code != 0 || out != "NAME  ADDRESS    READY\none   10.0.1.11  true\n" {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestObserveOnceReportsWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		apis    fakeAPIs
		want    []string // reported
		missing string
	}{
		{
			"the API server is unavailable",
			fakeAPIs{apiDown: true},
			[]string{"reading the nodes…", "  retrying: list all nodes: etcd is away"},
			"membership is unsynced",
		},
		{
			"the cloud is unavailable",
			fakeAPIs{nodes: []corev1.Node{workerNode("one", server1)}, listingFails: true},
			[]string{"listing the cloud…", "HTTP 503 Service Unavailable: maintenance"},
			"addresses are unsynced",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newCollector(t, tt.apis)
			var reported strings.Builder
			missing, err := p.ObserveOnce(t.Context(), 500*time.Millisecond, func(line string) { reported.WriteString(line + "\n") })
			if err != nil || missing == nil || !strings.Contains(missing.Error(), tt.missing) {
				t.Errorf("missing: %v, error: %v; want %q", missing, err, tt.missing)
			}
			expectContains(t, reported.String(), tt.want...)
			if t.Failed() {
				t.Log(reported.String())
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := p.ObserveOnce(ctx, time.Minute, func(string) {}); !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted: %v", err)
			}
		})
	}
}

// A reader of an incomplete list would conclude that the missing nodes have left.
func TestObserveOnceWaitsForWhatCanBePublished(t *testing.T) {
	nodes := []corev1.Node{workerNode("one", server1), workerNode("two", server2)}
	for name, tt := range map[string]struct {
		servers []string
		want    string // reported
	}{
		"no node has an address":             {nil, "addresses are unsynced (2 eligible nodes have no address)"},
		"a ready node has none, perhaps yet": {[]string{serverJSON(server1, "one", "10.0.1.11")}, "a ready node has no address, which another listing must confirm"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			reported := ""
			_, err := newCollector(t, fakeAPIs{nodes: nodes, servers: tt.servers}).ObserveOnce(ctx, time.Minute, func(line string) {
				if reported += line + "\n"; strings.Contains(line, tt.want) {
					cancel()
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("did not wait: %v\n%s", err, reported)
			}
		})
	}
}

func newCollector(t *testing.T, apis fakeAPIs) *collector.Collector {
	t.Helper()
	env := apis.start(t, nil)
	cfg := &Config{}
	if err := settings.Load(nil, func(name string) string { return env[name] }, cfg); err != nil {
		t.Fatal(err)
	}
	p, err := newNodeCollector(cfg, "test", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func expectContains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing", w)
		}
	}
}
