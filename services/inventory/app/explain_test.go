package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

func TestExplainObservesNodes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		outside fakeAPIs
		node    string
		code    int
		says    []string
		errs    []string
	}{
		{
			"a node that is told",
			fakeAPIs{nodes: []corev1.Node{workerNode("one", server1)}, servers: []string{serverJSON(server1, "one", "10.0.1.11")}},
			"one", 0,
			[]string{"one, as an inventory that starts now", "\nmatch\n", "  ok  Which server, by its provider ID? ", "  ok  Does 10.0.1.11 count? on LAN 2, NIC nic-one: chosen", "  ok  Does it bear 10.0.1.11? yes", "Told as READY at 10.0.1.11.", `{"explain":true,"names":["one"]}`},
			[]string{"reading the nodes…", "listing the cloud…"},
		},
		{
			"a node that is left out",
			fakeAPIs{
				nodes:   []corev1.Node{workerNode("one", server1), workerNode("two", server2), workerNode("cp", "", controlPlane)},
				servers: []string{serverJSON(server1, "one", "10.0.1.11"), serverJSON(server2, "two", "192.168.7.2")},
			},
			"two", 1,
			[]string{"  no  Does 192.168.7.2 count? ", "Left out, OUTSIDE_SUBNET: "},
			[]string{`"two" is left out`},
		},
		{
			"a control plane node",
			fakeAPIs{
				nodes:   []corev1.Node{workerNode("one", server1), workerNode("cp", "", controlPlane)},
				servers: []string{serverJSON(server1, "one", "10.0.1.11")},
			},
			"cp", 1,
			[]string{"\neligibility\n", "Left out, CONTROL_PLANE: "},
			[]string{`"cp" is left out`},
		},
		{
			"a name that nobody has",
			fakeAPIs{
				nodes:   []corev1.Node{workerNode("worker-one", server1), workerNode("worker-two", server2)},
				servers: []string{serverJSON(server1, "one", "10.0.1.11"), serverJSON(server2, "two", "10.0.1.12")},
			},
			"worker-oen", 1,
			[]string{"The source knows no node", "Names like it: worker-one, worker-two"},
			[]string{`"worker-oen" is not known to the source`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := runCommand(t, tt.outside.start(t, nil), "explain", tt.node)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			expectContains(t, out, tt.says...)
			expectContains(t, errs, tt.errs...)
			for line := range strings.Lines(out) {
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > outputWidth {
					t.Errorf("a line of %d characters: %s", n, line)
				}
			}
			if t.Failed() {
				t.Logf("%s\n%s", out, errs)
			}
		})
	}
}

func TestObserveOnceReportsWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		outside fakeAPIs
		says    []string // on the way
		missing string
	}{
		{
			"the API server does not answer",
			fakeAPIs{apiDown: true},
			[]string{"reading the nodes…", "  not yet: list all nodes: etcd is away"},
			"membership is unsynced",
		},
		{
			"the cloud does not answer",
			fakeAPIs{nodes: []corev1.Node{workerNode("one", server1)}, listingFails: true},
			[]string{"listing the cloud…", "HTTP 503 Service Unavailable: maintenance"},
			"addresses are unsynced",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := tt.outside.start(t, nil)
			cfg := &Config{}
			if err := settings.Load(nil, func(name string) string { return env[name] }, cfg); err != nil {
				t.Fatal(err)
			}
			l, err := newPipeline(cfg, "test", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			missing, err := l.observeOnce(t.Context(), 500*time.Millisecond, func(line string) { said.WriteString(line + "\n") })
			if err != nil || missing == nil || !strings.Contains(missing.Error(), tt.missing) {
				t.Errorf("missing: %v, error: %v; want %q", missing, err, tt.missing)
			}
			expectContains(t, said.String(), tt.says...)
			if t.Failed() {
				t.Log(said.String())
			}
			if e, _ := l.collector.Explain("one"); e.Verdict == "" {
				t.Error("it does not explain with what there is")
			}

			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := l.observeOnce(ctx, time.Minute, func(string) {}); !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted: %v", err)
			}
		})
	}
}

func expectContains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("it does not say %q", w)
		}
	}
}

func TestExplainReadsRecords(t *testing.T) {
	env := validEnv()
	maps.Copy(env, sourceEnv("static", "INVENTORY_STATIC",
		`[{"name":"a","private_ip":"10.0.1.11","ready":true,"worker":true},{"name":"b","private_ip":"10.9.0.1","ready":true,"worker":true}]`))
	code, out, errs := runCommand(t, env, "explain", "a")
	expectContains(t, out, "Told as READY at 10.0.1.11.")
	if code != 0 || strings.Contains(out, "\nmatch\n") || strings.Contains(errs, "cloud") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	code, out, _ = runCommand(t, env, "explain", "b")
	expectContains(t, out, "no  Does 10.9.0.1 count? outside of 10.0.1.0/24", "Left out, OUTSIDE_SUBNET: ")
	if code != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestExplainRejectsInvalidUsage(t *testing.T) {
	env := (&fakeAPIs{}).start(t, map[string]string{"SECURED_SUBNET_CIDR": ""})
	for _, tt := range []struct {
		args []string
		says string
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
		expectContains(t, errs, tt.says)
	}
}

func TestSuggestsSimilarNames(t *testing.T) {
	known := []string{"pool-a-1", "pool-a-2", "pool-b-1", "pool-b-2", "pool-b-3", "pool-b-4", "web", "very-different-name", "pool\x1b[2J"}
	for _, tt := range []struct {
		name string
		want []string
	}{
		{"pool-a-3", []string{"pool-a-1", "pool-a-2", "pool-b-3", "pool-b-1", "pool-b-2"}},
		{"wbe", []string{"web"}},
		{"different", []string{"very-different-name"}},
		{"pool", []string{"pool-a-1", "pool-a-2", "pool-b-1", "pool-b-2", "pool-b-3"}},
		{"pol[2J", []string{"pool [2J"}},
		{"", nil},
		{"nothing like it at all", nil},
	} {
		if d := cmp.Diff(tt.want, similarNames(tt.name, known)); d != "" {
			t.Errorf("%q (-want +got):\n%s", tt.name, d)
		}
	}
}
