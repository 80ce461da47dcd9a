package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/internal/settings"
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
	return out.String(), settings.ExitCode(err)
}

// component is a component that sends fixed reports, one after the other; the last one repeats.
type component struct {
	inventoryv1.UnimplementedInventoryReportServiceServer

	nodes    []*inventoryv1.NodeReport
	problems [][]*reportv1.Problem // of each report
	standby  bool
	filters  []string // of the requests
}

func (c *component) next(filter string) (problems []*reportv1.Problem) {
	c.filters = append(c.filters, filter)
	if len(c.problems) > 0 {
		problems = c.problems[0]
		c.problems = c.problems[min(1, len(c.problems)-1):]
	}
	return problems
}

func (c *component) GetReport(_ context.Context, request *reportv1.GetReportRequest) (*inventoryv1.InventoryReport, error) {
	if request.GetPageToken() == "" && len(c.nodes) > 1 {
		return &inventoryv1.InventoryReport{Nodes: c.nodes[:1], NextPageToken: "1", Problems: c.next(request.GetFilter())}, nil
	}
	return &inventoryv1.InventoryReport{Nodes: c.nodes[len(c.nodes)-1:], Problems: c.next(request.GetFilter())}, nil
}

type writer struct {
	writerv1.UnimplementedWriterReportServiceServer

	*component
}

func (w writer) GetReport(_ context.Context, request *reportv1.GetReportRequest) (*writerv1.WriterReport, error) {
	r := &writerv1.WriterReport{
		Leading:  new(!w.standby),
		Leader:   "another",
		Problems: w.next(request.GetFilter()),
		Filter:   request.GetFilter(),
	}
	if request.GetFilter() != "web/unknown" {
		r.Services = []*writerv1.ServiceReport{{Namespace: "web", Name: "shop\x1b[2J"}}
	}
	return r, nil
}

// serve returns the address of a component.
func (c *component) serve(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	if name == report.Inventory {
		inventoryv1.RegisterInventoryReportServiceServer(s, c)
	} else {
		writerv1.RegisterWriterReportServiceServer(s, writer{component: c})
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func warnings(messages ...string) (all []*reportv1.Problem) {
	for _, message := range messages {
		all = append(all, &reportv1.Problem{Level: reportv1.Level_LEVEL_WARNING, Message: message, Advice: "Wait\x1b[2J."})
	}
	return all
}

func TestExitCodesAndAdvice(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--help", 0, "Exit codes"},
		{"version", 0, "kubectl-slicefeed "},
		{"explian worker-4", 2, "unknown command \"explian\""},
		{"explain", 2, "missing argument FILTER"},
		{"explain worker-4 -o xml", 2, "want one of table, json, yaml"},
		{"status -n web -o json", 1, "\"error\": \"slicefeed-writer in context current: Get"},
		{"wait shop", 2, "want NAMESPACE/SERVICE"},
		{"wait web/shop/10.0.0.1", 2, "want NAMESPACE/SERVICE"},
		{"status --no-such-flag", 2, "unknown flag"},
		{"status --context red", 2, `context "red"`},
		{"status --writer-address 10.0.0.1", 2, "missing port in address"},
		{"wait web/shop --secured-context blue", 2, "this command asks slicefeed-writer; set the context of its cluster"},
		{"status --consuming-context green", 1, "slicefeed-writer in context green: Get"},
		{"status --writer-address 127.0.0.1:1", 1, "connection refused"},
	} {
		if out, code := run(t, strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, %q, want %d and %q", c.args, code, out, c.code, c.want)
		}
	}
}

func TestPrintsWhatEachAddressReports(t *testing.T) {
	nodes := []*inventoryv1.NodeReport{{Name: "worker-1"}, {Name: "worker-2"}}
	inventory, healthy := &component{nodes: nodes}, &component{}
	troubled := &component{problems: [][]*reportv1.Problem{warnings("it is slow")}}
	addresses := []string{
		"--inventory-address", inventory.serve(t, report.Inventory), "--writer-address", healthy.serve(t, report.Writer),
	}
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"status", 0, []string{"# slicefeed-inventory at 127", "worker-1", "worker-2", "# slicefeed-writer at 127", "web/shop [2J"}},
		{"explain web/shop -o yaml", 0, []string{"component: slicefeed-inventory", "name: worker-2", "component: slicefeed-writer", "filter: web/shop"}},
		{"status --writer-address " + troubled.serve(t, report.Writer), 1, []string{"it is slow", "Wait [2J.", "web/shop", "web/shop", "problems found"}},
		{"status --writer-address 127.0.0.1:1", 1, []string{"worker-1", "web/shop", "127.0.0.1:1"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			out, code := run(t, append(strings.Fields(c.args), addresses...)...)
			rest := out
			for _, text := range c.want {
				_, after, found := strings.Cut(rest, text)
				if rest = after; !found {
					t.Errorf("no %q in its place", text)
				}
			}
			if code != c.code || t.Failed() {
				t.Errorf("exit code %d, want %d:\n%s", code, c.code, out)
			}
		})
	}
	if out, code := run(
		t,
		"explain",
		"web/unknown",
		"--writer-address",
		addresses[3],
	); code != 1 ||
		!strings.Contains(out, "no component knows web/unknown") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestWaitsUntilHealthyOrTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		args     string
		problems [][]*reportv1.Problem
		code     int
		want     string
	}{
		"healthy":       {"web/shop", nil, 0, ""},
		"after a while": {"web/shop", [][]*reportv1.Problem{warnings("it is slow"), nil}, 0, "waiting: it is slow; Wait [2J.\n"},
		"never": {
			"web/shop --timeout 2s",
			[][]*reportv1.Problem{warnings("it is slow")},
			1,
			"waiting: it is slow; Wait [2J.\nweb/shop is not healthy: it is slow; Wait\x1b[2J.",
		},
		"nowhere": {"web/unknown --timeout 2s", nil, 1, "waiting: no writer has this Service"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writer := &component{problems: c.problems}
			out, code := run(t, append([]string{"wait", "--writer-address", writer.serve(t, report.Writer)}, strings.Fields(c.args)...)...)
			if code != c.code || !strings.HasPrefix(out, c.want) || c.want == "" && out != "" {
				t.Errorf("exit code %d, want %d: %q, want %q", code, c.code, out, c.want)
			}
		})
	}
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

func TestAnInterruptedWaitIsNoAnswer(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	cmd := newCommand(func(string) string { return "" })
	cmd.SetArgs(
		[]string{
			"wait",
			"web/shop",
			"--writer-address",
			(&component{problems: [][]*reportv1.Problem{warnings("it is slow")}}).serve(t, report.Writer),
		},
	)
	cmd.SetErr(writeFunc(func(p []byte) (int, error) { interrupt(); return len(p), nil }))
	if err := cmd.ExecuteContext(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// deployment returns a Deployment of a writer and its ReplicaSet, and the name of the latter's Pods.
func deployment(name string) []runtime.Object {
	labels := map[string]string{nameLabel: report.Writer}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("set of " + name), Labels: labels}}
	set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", UID: types.UID(name), Controller: new(true)}}
	return []runtime.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name), Labels: labels}}, set,
	}
}

func pod(name, set string, phase corev1.PodPhase, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: name, Labels: map[string]string{nameLabel: report.Writer},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: types.UID("set of " + set), Controller: new(true)},
			},
		},
		Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func TestAsksEachInstallationOfACluster(t *testing.T) {
	objects := append(deployment("one"), deployment("two")...)
	objects = append(objects, deployment("three")...)
	objects = append(objects, deployment("four")...)
	// Only their own Pods count, whatever has the label.
	hostile := pod("hostile", "nothing", corev1.PodRunning, corev1.ConditionTrue)
	loose := pod("loose", "one", corev1.PodRunning, corev1.ConditionTrue)
	loose.OwnerReferences[0].Controller = nil
	objects = append(objects, hostile, loose,
		pod("one-a", "one", corev1.PodRunning, corev1.ConditionTrue), pod("one-b", "one", corev1.PodRunning, corev1.ConditionTrue),
		pod("two-a", "two", corev1.PodRunning, corev1.ConditionFalse), pod("two-b", "two", corev1.PodRunning, corev1.ConditionTrue),
		pod("three-a", "three", corev1.PodPending, corev1.ConditionFalse), pod("four-a", "four", corev1.PodRunning, corev1.ConditionTrue))
	leader, standby := (&component{}).serve(t, report.Writer), (&component{standby: true}).serve(t, report.Writer)
	var forwarded []string
	o := &options{forward: func(_ context.Context, _ *cluster, p *corev1.Pod, _ int) (string, error) {
		forwarded = append(forwarded, p.Name)
		switch p.Name {
		case "one-a", "two-b":
			return standby, nil
		case "one-b", "two-a":
			return leader, nil
		default:
			return "", errors.New("no right to")
		}
	}}
	c := &cluster{context: "green", client: fake.NewClientset(objects...)}
	var got []string
	for _, a := range o.askCluster(t.Context(), c, report.Writer, "", "") {
		got = append(got, fmt.Sprintf("%s %s: %t %s", a.Where, a.Pod, report.IsEmpty(a.Report.Report), a.Error))
	}
	want := `in context green, Deployment web/four : true slicefeed-writer in context green, Deployment web/four: connect to Pod web/four-a: no right to
in context green, Deployment web/one web/one-b: false 
in context green, Deployment web/three : true slicefeed-writer in context green, Deployment web/three: no Pod runs
in context green, Deployment web/two web/two-a: false `
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if order := strings.Join(forwarded, " "); order != "four-a one-a one-b two-b two-a" { // ready ones first
		t.Errorf("forwarded to %s", order)
	}
	c.client = fake.NewClientset(hostile)
	if a := o.askCluster(t.Context(), c, report.Writer, "web", ""); len(a) != 1 || a[0].err == nil ||
		!strings.Contains(a[0].err.Error(), "no Deployment with label app.kubernetes.io/name=slicefeed-writer in web") {
		t.Errorf("%v", a)
	}
}

func TestGivesUpOnAComponentThatDoesNotRespond(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := report.Fetch(ctx, report.Writer, l.Addr().String(), ""); err == nil {
		t.Error("no error")
	}
}
