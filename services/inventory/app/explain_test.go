package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/internal/command/commandtest"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/inventory/config"
	"github.com/slicefeed/slicefeed/services/inventory/config/configtest"
)

func TestExplainObservesNodes(t *testing.T) {
	for _, tt := range []struct {
		name string
		apis fakeAPIs
		node string
		code int
		want []string // in standard output
		errs []string // in standard error
	}{
		{
			"a published node",
			fakeAPIs{nodes: []corev1.Node{workerNode("one", server1)}, servers: []string{serverJSON(server1, "one", "10.0.1.11")}},
			"one", 0,
			[]string{"one, as a newly started inventory would publish it", "\nmatch\n", "  ok  Which server, by its provider ID? ", "  ok  Can 10.0.1.11 be used? on LAN 2, NIC nic-one: chosen", "  ok  Is 10.0.1.11 assigned to it? yes", "Published as READY at 10.0.1.11.", `{"names":["one"]}`},
			[]string{"reading the nodes…", "listing the cloud…"},
		},
		{
			"an omitted node",
			fakeAPIs{
				nodes:   []corev1.Node{workerNode("one", server1), workerNode("two", server2), workerNode("cp", "", controlPlane)},
				servers: []string{serverJSON(server1, "one", "10.0.1.11"), serverJSON(server2, "two", "192.168.7.2")},
			},
			"two", 1,
			[]string{"  no  Can 192.168.7.2 be used? ", "Omitted, OUTSIDE_SUBNET: "},
			[]string{`node "two" omitted`},
		},
		{
			"a control plane node",
			fakeAPIs{
				nodes:   []corev1.Node{workerNode("one", server1), workerNode("cp", "", controlPlane)},
				servers: []string{serverJSON(server1, "one", "10.0.1.11")},
			},
			"cp", 1,
			[]string{"\neligibility\n", "Omitted, CONTROL_PLANE: "},
			[]string{`node "cp" omitted`},
		},
		{
			"an unknown name",
			fakeAPIs{
				nodes:   []corev1.Node{workerNode("worker-one", server1), workerNode("worker-two", server2)},
				servers: []string{serverJSON(server1, "one", "10.0.1.11"), serverJSON(server2, "two", "10.0.1.12")},
			},
			"worker-oen", 1,
			[]string{`Node "worker-oen" is not in the source`},
			[]string{`node "worker-oen" not found in source`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := runCommand(t, tt.apis.start(t, nil), "explain", tt.node)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			expectContains(t, out, tt.want...)
			expectContains(t, errs, tt.errs...)
			for line := range strings.Lines(out) {
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > outputWidth {
					t.Errorf("line of %d characters: %s", n, line)
				}
			}
			if t.Failed() {
				t.Logf("%s\n%s", out, errs)
			}
		})
	}
}

func TestExplainAsJSON(t *testing.T) {
	apis := fakeAPIs{
		nodes:   []corev1.Node{workerNode("one", server1), workerNode("two", server2)},
		servers: []string{serverJSON(server1, "one", "10.0.1.11"), serverJSON(server2, "two", "192.168.7.2")},
	}
	code, out, errs := runCommand(t, apis.start(t, nil), "explain", "two", "-o", "json")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	expectContains(t, errs, `node "two" omitted`)
	if err := commandtest.CheckOutput("../../../docs/reference/output.md", "inventory-explain", out, *update); err != nil {
		t.Errorf("%v\n%s", err, out)
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
			env := tt.apis.start(t, nil)
			cfg := &config.Config{}
			if err := settings.Load(nil, func(name string) string { return env[name] }, cfg); err != nil {
				t.Fatal(err)
			}
			p, err := config.NewPipeline(cfg, "test", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			var reported strings.Builder
			missing, err := p.ObserveOnce(t.Context(), 500*time.Millisecond, func(line string) { reported.WriteString(line + "\n") })
			if err != nil || missing == nil || !strings.Contains(missing.Error(), tt.missing) {
				t.Errorf("missing: %v, error: %v; want %q", missing, err, tt.missing)
			}
			expectContains(t, reported.String(), tt.want...)
			if t.Failed() {
				t.Log(reported.String())
			}
			if e, _ := p.Explain("one"); e.Conclusion == "" {
				t.Error("no explanation without a complete observation")
			}

			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := p.ObserveOnce(ctx, time.Minute, func(string) {}); !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted: %v", err)
			}
		})
	}
}

func expectContains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing", w)
		}
	}
}

func TestExplainReadsRecords(t *testing.T) {
	env := configtest.Env()
	maps.Copy(env, configtest.SourceEnv(
		"static",
		"INVENTORY_STATIC",
		`[{"name":"a","private_ip":"10.0.1.11","ready":true,"worker":true},{"name":"b","private_ip":"10.9.0.1","ready":true,"worker":true}]`,
	))
	code, out, errs := runCommand(t, env, "explain", "a")
	expectContains(t, out, "Published as READY at 10.0.1.11.")
	if code != 0 || strings.Contains(out, "\nmatch\n") || strings.Contains(errs, "cloud") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	code, out, _ = runCommand(t, env, "explain", "b")
	expectContains(t, out, "no  Can 10.9.0.1 be used? outside 10.0.1.0/24", "Omitted, OUTSIDE_SUBNET: ")
	if code != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestExplainRejectsInvalidUsage(t *testing.T) {
	env := (&fakeAPIs{}).start(t, map[string]string{"SECURED_SUBNET_CIDR": ""})
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"explain"}, "NODE"},
		{[]string{"explain", "a", "b"}, "NODE"},
		{[]string{"explain", "a"}, "SECURED_SUBNET_CIDR is not set"},
		{[]string{"explain", "a", "--secured-subnet-cidr=10.0.1.0/24", "--secured-kubeconfig=/nonexistent"}, "SECURED_KUBECONFIG"},
	} {
		code, out, errs := runCommand(t, env, tt.args...)
		if code != 2 || out != "" {
			t.Errorf("%v: exit code %d, printed %q", tt.args, code, out)
		}
		expectContains(t, errs, tt.want)
	}
}

func TestHintNamesTheExportedService(t *testing.T) {
	for selector, want := range map[string]string{
		"":           `-d '{"names":["web-1"]}'`,
		"export=yes": `-d '{"names":["web-1"],"service":"shop/web"}'`,
	} {
		var out strings.Builder
		printGrpcurlHint(&out, &config.Config{SourceService: "shop/web", ExportSelector: selector}, "web-1")
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s, want %s", out.String(), want)
		}
	}
}
