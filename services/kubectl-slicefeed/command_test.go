package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slicefeed/slicefeed/services/internal/statuspage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kubeconfig = `apiVersion: v1
kind: Config
current-context: blue
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:1"}}
contexts:
- {name: blue, context: {cluster: c}}
- {name: green, context: {cluster: c}}
`

// run returns what the command prints and its exit code.
func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := newCommand(func(string) string { return "" })
	cmd.SetArgs(append([]string{"--kubeconfig", path}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		out.WriteString(err.Error())
	}
	return out.String(), exitCode(err)
}

func TestExitCodesAndAdvice(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--help", 0, "Exit codes"},
		{"explian worker-4", 2, "unknown command \"explian\""},
		{"explain", 2, "explain NODE|NAMESPACE/SERVICE|ADDRESS"},
		{"explain Worker_4", 2, "want the name of a node"},
		{"explain worker-4 -o xml", 2, "want one of table, json, yaml"},
		{"status -o json", 1, "{\n  \"pages\": []\n}\n"},
		{"wait shop", 2, "want NAMESPACE/SERVICE"},
		{"status --no-such-flag", 2, "unknown flag"},
		{"status --secured-context red", 2, `context "red"`},
		{"wait web/shop --secured-context blue", 2, "this command asks slicefeed-writer; set the context of its cluster"},
		{"status --consuming-context green", 1, `find slicefeed-writer in context "green"`},
	} {
		if out, code := run(t, strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, %q, want %d and %q", c.args, code, out, c.code, c.want)
		}
	}
}

func TestFindsRunningPodsReadyOnesFirst(t *testing.T) {
	pod := func(name, component string, phase corev1.PodPhase, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{nameLabel: component}},
			Status:     corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	c := &component{name: writer, client: fake.NewClientset(
		pod("a", writer, corev1.PodRunning, corev1.ConditionFalse), pod("b", writer, corev1.PodPending, corev1.ConditionFalse),
		pod("d", writer, corev1.PodRunning, corev1.ConditionTrue), pod("c", writer, corev1.PodRunning, corev1.ConditionTrue),
		pod("e", inventory, corev1.PodRunning, corev1.ConditionTrue),
	)}
	pods, err := c.pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "c d a" {
		t.Errorf("got %s, want c d a", got)
	}
	c.client = fake.NewClientset()
	if _, err := c.pods(
		t.Context(),
	); err == nil ||
		!strings.Contains(err.Error(), "no running Pod with label app.kubernetes.io/name=slicefeed-writer") {
		t.Errorf("no Pod: %v", err)
	}
}

func TestWaitsUntilHealthyOrTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			looks []statuspage.Line // an empty one is an error; the last one repeats
			want  string
			took  time.Duration
			lines int // of progress
		}{
			"healthy":              {[]statuspage.Line{statuspage.OKf("healthy")}, "", 0, 0},
			"after a while":        {[]statuspage.Line{statuspage.Warnf("1 held"), {}, statuspage.OKf("healthy")}, "", 2 * time.Second, 2},
			"never":                {[]statuspage.Line{statuspage.Errorf("rejected")}, "web/shop is not healthy: rejected", 10 * time.Second, 1},
			"no answer at the end": {[]statuspage.Line{statuspage.Warnf("1 held"), {}}, "web/shop is not healthy: no Pod", 10 * time.Second, 2},
		} {
			begun, looks := time.Now(), c.looks
			var progress strings.Builder
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			err := waitHealthy(ctx, &progress, "web/shop", func(context.Context, string) (string, *statuspage.Page, error) {
				last := looks[0]
				looks = looks[min(1, len(looks)-1):]
				if last.Text == "" {
					return "", nil, errors.New("no Pod")
				}
				return "writer-1", &statuspage.Page{Summary: last}, nil
			})
			cancel()
			got := ""
			if err != nil {
				got = err.Error()
			}
			if lines := strings.Count(progress.String(), "waiting: "); lines != c.lines {
				t.Errorf("%s: %d lines of progress, want %d:\n%s", name, lines, c.lines, progress.String())
			}
			if got != c.want || time.Since(begun) != c.took {
				t.Errorf("%s: %q after %s, want %q after %s", name, got, time.Since(begun), c.want, c.took)
			}
		}
	})
}
