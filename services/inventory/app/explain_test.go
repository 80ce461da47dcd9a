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

func TestExplainLooksForItself(t *testing.T) {
	for _, tt := range []struct {
		name    string
		outside outside
		node    string
		code    int
		says    []string
		errs    []string
	}{
		{
			"a node that is told",
			outside{nodes: []corev1.Node{worker("one", server1)}, servers: []string{machine(server1, "one", "10.0.1.11")}},
			"one", 0,
			[]string{"one, as an inventory that starts now", "\nmatch\n", "  ok  Which server, by its provider ID? ", "  ok  Does 10.0.1.11 count? on LAN 2, NIC nic-one: chosen", "  ok  Does it bear 10.0.1.11? yes", "Told as READY at 10.0.1.11.", `{"explain":true,"names":["one"]}`},
			[]string{"reading the nodes…", "listing the cloud…"},
		},
		{
			"a node that is left out",
			outside{
				nodes:   []corev1.Node{worker("one", server1), worker("two", server2), worker("cp", "", controlPlane)},
				servers: []string{machine(server1, "one", "10.0.1.11"), machine(server2, "two", "192.168.7.2")},
			},
			"two", 1,
			[]string{"  no  Does 192.168.7.2 count? ", "Left out, OUTSIDE_SUBNET: "},
			[]string{`"two" is left out`},
		},
		{
			"a control plane node",
			outside{
				nodes:   []corev1.Node{worker("one", server1), worker("cp", "", controlPlane)},
				servers: []string{machine(server1, "one", "10.0.1.11")},
			},
			"cp", 1,
			[]string{"\neligibility\n", "Left out, CONTROL_PLANE: "},
			[]string{`"cp" is left out`},
		},
		{
			"a name that nobody has",
			outside{
				nodes:   []corev1.Node{worker("worker-one", server1), worker("worker-two", server2)},
				servers: []string{machine(server1, "one", "10.0.1.11"), machine(server2, "two", "10.0.1.12")},
			},
			"worker-oen", 1,
			[]string{"The source knows no node", "Names like it: worker-one, worker-two"},
			[]string{`"worker-oen" is not known to the source`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := run(t, tt.outside.serve(t, nil), "explain", tt.node)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			contains(t, out, tt.says...)
			contains(t, errs, tt.errs...)
			for line := range strings.Lines(out) {
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
					t.Errorf("a line of %d characters: %s", n, line)
				}
			}
			if t.Failed() {
				t.Logf("%s\n%s", out, errs)
			}
		})
	}
}

func TestAGlanceEndsAndSaysWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		outside outside
		says    []string // on the way
		missing string
	}{
		{
			"the API server does not answer",
			outside{down: true},
			[]string{"reading the nodes…", "  not yet: list all nodes: etcd is away"},
			"membership is unsynced",
		},
		{
			"the cloud does not answer",
			outside{nodes: []corev1.Node{worker("one", server1)}, fails: true},
			[]string{"listing the cloud…", "HTTP 503 Service Unavailable: maintenance"},
			"addresses are unsynced",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := tt.outside.serve(t, nil)
			cfg := &Config{}
			if err := settings.Load(nil, func(name string) string { return env[name] }, cfg); err != nil {
				t.Fatal(err)
			}
			l, err := newLookout(cfg, "test", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			missing, err := l.glance(t.Context(), 500*time.Millisecond, func(line string) { said.WriteString(line + "\n") })
			if err != nil || missing == nil || !strings.Contains(missing.Error(), tt.missing) {
				t.Errorf("missing: %v, error: %v; want %q", missing, err, tt.missing)
			}
			contains(t, said.String(), tt.says...)
			if t.Failed() {
				t.Log(said.String())
			}
			if e, _ := l.collector.Explain("one"); e.Verdict == "" {
				t.Error("it does not explain with what there is")
			}

			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := l.glance(ctx, time.Minute, func(string) {}); !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted: %v", err)
			}
		})
	}
}

func contains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("it does not say %q", w)
		}
	}
}

func TestExplainReadsRecordsToo(t *testing.T) {
	env := valid()
	maps.Copy(env, onlySource("static", "INVENTORY_STATIC",
		`[{"name":"a","private_ip":"10.0.1.11","ready":true,"worker":true},{"name":"b","private_ip":"10.9.0.1","ready":true,"worker":true}]`))
	code, out, errs := run(t, env, "explain", "a")
	contains(t, out, "Told as READY at 10.0.1.11.")
	if code != 0 || strings.Contains(out, "\nmatch\n") || strings.Contains(errs, "cloud") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	code, out, _ = run(t, env, "explain", "b")
	contains(t, out, "no  Does 10.9.0.1 count? outside of 10.0.1.0/24", "Left out, OUTSIDE_SUBNET: ")
	if code != 1 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestExplainWantsOneNameAndAConfigurationThatCanWork(t *testing.T) {
	env := (&outside{}).serve(t, map[string]string{"SECURED_SUBNET_CIDR": ""})
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"explain"}, "NODE"},
		{[]string{"explain", "a", "b"}, "NODE"},
		{[]string{"explain", "a"}, "SECURED_SUBNET_CIDR is not set"},
		{[]string{"explain", "a", "--secured-subnet-cidr=10.0.1.0/24", "--secured-kubeconfig=/nonexistent"}, "SECURED_KUBECONFIG"},
	} {
		code, out, errs := run(t, env, tt.args...)
		if code != 2 || out != "" {
			t.Errorf("%v: exit code %d, printed %q", tt.args, code, out)
		}
		contains(t, errs, tt.says)
	}
}

func TestNamesThatAreLikeAnother(t *testing.T) {
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
		if d := cmp.Diff(tt.want, similar(tt.name, known)); d != "" {
			t.Errorf("%q (-want +got):\n%s", tt.name, d)
		}
	}
}
