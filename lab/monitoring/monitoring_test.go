package monitoring

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

var verifies = os.Getenv("SLICEFEED_VERIFY") == "1"

func TestMain(m *testing.M) {
	if !verifies {
		os.Exit(m.Run())
	}
	pair.Main(m)
}

var halves = []string{"inventory", "writer"}

// tool is the path of a program in .bin, and of the charts' files.
func tool(t *testing.T, name string) (program, deploy string) {
	t.Helper()
	if !verifies {
		t.Skip("part of make verify")
	}
	root, err := pair.Root()
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(root, ".bin", name)
	if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
		t.Skipf("not run: there is no %s: tools/build monitoring builds it", program)
	}
	return program, filepath.Join(root, "deploy")
}

func TestTheRulesAreSoundAndPassTheirTests(t *testing.T) {
	promtool, deploy := tool(t, "promtool")
	for _, half := range halves {
		dir := filepath.Join(deploy, "slicefeed-"+half)
		for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
			cmd := exec.CommandContext(t.Context(), promtool, args...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: promtool %s: %v\n%s", half, strings.Join(args, " "), err, out)
			}
		}
	}
}

func TestTheConfigurationsForDockerComposeAreSound(t *testing.T) {
	promtool, deploy := tool(t, "promtool")
	for _, side := range []string{"secured", "consuming"} {
		cmd := exec.CommandContext(t.Context(), promtool, "check", "config", "--syntax-only",
			filepath.Join(deploy, "compose/observability", side+".yaml"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", side, err, out)
		}
	}
}

// quiet are the panels of which a query need not have an answer, by the metric that it is about,
// and why. The metric has to be there all the same.
var quiet = map[string]string{
	"slicefeed_writer_source_protocol_violations_total": "the real inventory keeps the contract",
	"slicefeed_inventory_grpc_server_handled_total":     "nobody was refused",
}

// room is the pair with a Prometheus that scrapes it.
type room struct {
	*pair.Pair
	*Prometheus

	t *testing.T
}

// patience is how long anything may take: a failover takes 17 s.
const patience = 90 * time.Second

func TestAPrometheusSeesWhatHappensToThePair(t *testing.T) {
	program, deploy := tool(t, "prometheus")
	programs, err := controlplane.Build(t.Context(), os.Stderr)
	must(t, err)
	p, err := pair.Start(t.Context(), pair.Options{
		Programs: programs, Writers: 2, Dir: t.TempDir(),
		Inventory: map[string]string{"IONOS_POLL_INTERVAL": "1s", "SOURCE_POLL_INTERVAL": "1s", "IONOS_REQUEST_BUDGET": "6000"},
		Writer:    map[string]string{"SHRINK_WINDOW": "0"},
	})
	must(t, err)
	t.Cleanup(func() { must(t, p.Stop()) })
	o := Options{
		Program: program, Dir: filepath.Join(p.Dir(), "prometheus"),
		Targets: map[string][]string{"web/slicefeed-writer": nil, "slicefeed/slicefeed-inventory": {p.Inventory.AdminAddress()}},
	}
	for _, w := range p.Writers {
		o.Targets["web/slicefeed-writer"] = append(o.Targets["web/slicefeed-writer"], w.AdminAddress())
	}
	for _, half := range halves {
		text, err := os.ReadFile(filepath.Join(deploy, "slicefeed-"+half, "alerts.yaml"))
		must(t, err)
		text, err = Hasten(text, 3*Interval)
		must(t, err)
		file := filepath.Join(p.Dir(), half+"-alerts.yaml")
		must(t, os.WriteFile(file, text, 0o600))
		o.Rules = append(o.Rules, file)
	}
	token := "e30." + base64.RawURLEncoding.EncodeToString(
		fmt.Appendf(nil, `{"exp":%d}`, time.Now().Add(30*24*time.Hour).Unix()),
	) + ".signature"
	p.Cloud.SetToken(token)
	must(t, os.WriteFile(filepath.Join(p.Inventory.Dir(), "ionos-token"), []byte(token), 0o600))
	must(t, p.StartComponents(t.Context()))
	prom, err := Start(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { must(t, prom.Stop()) })

	r := &room{p, prom, t}
	r.play(deploy)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *room) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

// play causes faults, and checks the alerts after each.
func (r *room) play(deploy string) {
	workers := make([]*pair.Worker, 3)
	for i := range workers {
		var err error
		workers[i], err = r.AddWorker(
			pair.WorkerOptions{Name: fmt.Sprintf("worker-%d", i+1), Address: netip.MustParseAddr(fmt.Sprintf("10.0.1.%d", 10+i))},
		)
		must(r.t, err)
		must(r.t, workers[i].Join(r.ctx()))
	}
	r.sees(`slicefeed_writer_target_healthy{namespace="web", service="shop"} == 1 and on (job, instance) slicefeed_writer_leader == 1`)
	r.sees(`sum(slicefeed_inventory_subscribers) == 2`)
	r.t.Run("nothing is wrong while nothing happens", func(t *testing.T) {
		in := *r
		in.t = t
		in.calm()
	})
	for _, step := range []struct {
		name   string
		happen func()
		alerts []string // that fire for it, at least
		undo   func()
	}{
		{"a Service that is given a selector", func() { r.selector(map[string]string{"app": "shop"}) }, []string{"SlicefeedServiceNotManaged", "SlicefeedServiceUnhealthy"}, func() { r.selector(nil) }},
		{"somebody pauses it", func() { r.annotate("true") }, []string{"SlicefeedServicePaused"}, func() { r.annotate("") }},
		{"all backends refuse", func() { r.all(workers, backend.Refuse) }, []string{"SlicefeedGuardActive"}, func() { r.all(workers, backend.Serve) }},
		{"a Service whose selector fits no node", func() { r.lonely() }, []string{"SlicefeedServiceNoReadyEndpoints"}, func() {
			must(r.t, r.ConsumingClient().CoreV1().Services(pair.Namespace).Delete(r.ctx(), "lonely", metav1.DeleteOptions{}))
		}},
		{"a node that has no address", func() { r.stranger() }, []string{"SlicefeedInventoryNodesOmitted"}, func() {
			must(r.t, r.SecuredClient().CoreV1().Nodes().Delete(r.ctx(), "stranger", metav1.DeleteOptions{}))
		}},
		{"the API server refuses writes", func() { r.forbid(workers[0]) }, []string{"SlicefeedWritesRejected", "SlicefeedServiceOutOfSync"}, func() { r.allow(); must(r.t, workers[0].Set(backend.Serve)) }},
		{"the cloud refuses the token", func() { r.Cloud.SetToken("another") }, []string{"SlicefeedInventoryAddressesNotSynced"}, func() { r.Cloud.SetToken(r.token()) }},
		{"a certificate is replaced by rubbish", func() { r.spoil() }, []string{"SlicefeedInventoryTLSReloadErrors"}, nil},
		{"the inventory is killed", func() { must(r.t, r.Inventory.Kill()) }, []string{"SlicefeedInventoryDown", "SlicefeedSourceDisconnected"}, func() { r.mend(); must(r.t, r.Inventory.Start(r.ctx())) }},
		{"the writer that leads is killed", func() { must(r.t, r.leader().Kill()) }, []string{"SlicefeedNoLeader"}, nil},
		{"both are", func() {
			for _, w := range r.Writers {
				must(r.t, w.Kill())
			}
		}, []string{"SlicefeedWriterDown", "SlicefeedInventoryNoSubscribers"}, func() {
			for _, w := range r.Writers {
				must(r.t, w.Start(r.ctx()))
			}
		}},
	} {
		ok := r.t.Run(step.name, func(t *testing.T) {
			began := time.Now()
			step.happen()
			in := *r
			in.t = t
			for _, name := range step.alerts {
				in.sees(fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing"}`, name))
			}
			in.readable()
			t.Logf("after %s: %v", time.Since(began).Round(time.Second), in.firing())
			if step.undo != nil {
				step.undo()
			}
		})
		if !ok {
			r.t.Fatal("what follows builds upon this")
		}
	}
	r.sees(`slicefeed_writer_target_healthy{namespace="web", service="shop"} == 1 and on (job, instance) slicefeed_writer_leader == 1`)
	r.asked(deploy)
	r.documented(deploy)
}

// sees waits until an expression has an answer.
func (r *room) sees(expr string) {
	r.t.Helper()
	err := r.Until(r.ctx(), expr, func(ctx context.Context) (bool, error) {
		all, err := r.Instant(ctx, expr)
		return len(all) > 0, err
	})
	if err != nil {
		r.t.Fatalf("%v; firing: %v", err, r.firing())
	}
}

func (r *room) firing() []model.LabelValue {
	all, err := r.Instant(r.t.Context(), `ALERTS{alertstate="firing"}`)
	must(r.t, err)
	names := map[model.LabelValue]bool{}
	for _, a := range all {
		names[a.Metric["alertname"]] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// calm waits until every alert was looked at several times, and wants none to fire. Those of
// the start are over by then.
func (r *room) calm() {
	r.sees(`count_over_time(slicefeed_writer_build_info[20s]) >= 15`)
	r.sees(`(absent(ALERTS{alertstate="firing"}))`)
	rules, err := r.Alerts(r.t.Context())
	must(r.t, err)
	if len(rules) < 30 {
		r.t.Errorf("there are only %d rules", len(rules))
	}
	for _, rule := range rules {
		if rule.Health != promv1.RuleHealthGood {
			r.t.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
		}
	}
}

// readable checks the texts of the pending and firing alerts.
func (r *room) readable() {
	r.t.Helper()
	rules, err := r.Alerts(r.t.Context())
	must(r.t, err)
	for _, rule := range rules {
		for _, a := range rule.Alerts {
			for name, value := range a.Annotations {
				text := string(value)
				if strings.Contains(text, "<error") || strings.Contains(text, "<no value>") || strings.Contains(text, "{{") ||
					strings.Contains(text, "  ") {
					r.t.Errorf("%s: its %s is %q", rule.Name, name, text)
				}
			}
		}
	}
}

// asked evaluates every query of the dashboards over the whole run.
func (r *room) asked(deploy string) {
	types, err := r.Metadata(r.t.Context(), "", "")
	must(r.t, err)
	for _, half := range halves {
		text, err := os.ReadFile(filepath.Join(deploy, "slicefeed-"+half, "dashboard.json"))
		must(r.t, err)
		all, err := Panels(text)
		must(r.t, err)
		for _, panel := range all {
			r.t.Run(half+": "+panel.Title, func(t *testing.T) {
				for _, expr := range panel.Queries {
					series, err := r.History(t.Context(), expr)
					if err != nil {
						t.Error(err)
						continue
					}
					if len(series) > 0 {
						continue
					}
					metric := regexp.MustCompile(`slicefeed_\w+`).FindString(expr)
					if why, may := quiet[metric]; may && len(types[metric]) > 0 {
						t.Logf("no answer to %s: %s", expr, why)
						continue
					}
					t.Errorf("no answer to %s", expr)
				}
			})
		}
	}
}

// documented compares the types that Prometheus has scraped with those of docs/reference/metrics.md.
func (r *room) documented(deploy string) {
	text, err := os.ReadFile(filepath.Join(deploy, "..", "docs", "reference", "metrics.md"))
	must(r.t, err)
	types, err := r.Metadata(r.t.Context(), "", "")
	must(r.t, err)
	seen := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `(slicefeed_\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(text), -1) {
		if is, told := types[row[1]]; told {
			seen++
			if is[0].Type != promv1.MetricType(row[2]) {
				r.t.Errorf("%s is a %s, the docs say %s", row[1], is[0].Type, row[2])
			}
		} else {
			r.t.Logf("nothing was told of %s", row[1])
		}
	}
	if seen < 60 {
		r.t.Errorf("of the documented metrics only %d were seen", seen)
	}
}

func (r *room) selector(selects map[string]string) {
	r.change(func(s *corev1.Service) { s.Spec.Selector = selects })
}

func (r *room) annotate(paused string) {
	r.change(func(s *corev1.Service) {
		if delete(s.Annotations, "slicefeed.dev/paused"); paused != "" {
			s.Annotations = map[string]string{"slicefeed.dev/paused": paused}
		}
	})
}

func (r *room) change(change func(*corev1.Service)) {
	services := r.ConsumingClient().CoreV1().Services(pair.Namespace)
	service, err := services.Get(r.ctx(), pair.Service, metav1.GetOptions{})
	must(r.t, err)
	change(service)
	_, err = services.Update(r.ctx(), service, metav1.UpdateOptions{})
	must(r.t, err)
}

func (r *room) all(workers []*pair.Worker, mode backend.Mode) {
	for _, w := range workers {
		must(r.t, w.Set(mode))
	}
}

// lonely makes a Service whose selector matches no node.
func (r *room) lonely() {
	_, err := r.ConsumingClient().CoreV1().Services(pair.Namespace).Create(r.ctx(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "lonely",
			Labels:      map[string]string{"slicefeed.dev/class": "default"},
			Annotations: map[string]string{"slicefeed.dev/node-selector": "pool=none"},
		},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(pair.NodePort)}}},
	}, metav1.CreateOptions{})
	must(r.t, err)
}

// stranger makes a Node whose machine has no address on the private LAN for an hour.
func (r *room) stranger() {
	w, err := r.AddWorker(pair.WorkerOptions{Name: "stranger", Address: netip.MustParseAddr("10.0.1.99"), NICAfter: time.Hour})
	must(r.t, err)
	must(r.t, w.Join(r.ctx()))
}

const role = "slicefeed-writer"

// forbid takes the writers' permissions away, and has one of the endpoints change.
func (r *room) forbid(w *pair.Worker) {
	roles := r.ConsumingClient().RbacV1().Roles(pair.Namespace)
	before, err := roles.Get(r.ctx(), role, metav1.GetOptions{})
	must(r.t, err)
	kept := before.DeepCopy()
	for i := range kept.Rules {
		if slices.Contains(kept.Rules[i].Resources, "endpointslices") {
			kept.Rules[i].Verbs = []string{"get", "list", "watch"}
		}
	}
	_, err = roles.Update(r.ctx(), kept, metav1.UpdateOptions{})
	must(r.t, err)
	must(r.t, w.Set(backend.Refuse))
}

func (r *room) allow() {
	roles := r.ConsumingClient().RbacV1().Roles(pair.Namespace)
	now, err := roles.Get(r.ctx(), role, metav1.GetOptions{})
	must(r.t, err)
	for i := range now.Rules {
		if slices.Contains(now.Rules[i].Resources, "endpointslices") {
			now.Rules[i].Verbs = []string{"get", "list", "watch", "create", "update", "delete"}
		}
	}
	_, err = roles.Update(r.ctx(), now, metav1.UpdateOptions{})
	must(r.t, err)
}

func (r *room) token() string {
	text, err := os.ReadFile(filepath.Join(r.Inventory.Dir(), "ionos-token"))
	must(r.t, err)
	return strings.TrimSpace(string(text))
}

func (r *room) cert() string {
	for _, line := range r.Inventory.Env() {
		if file, ok := strings.CutPrefix(line, "TLS_CERT_FILE="); ok {
			return file
		}
	}
	r.t.Fatal("the inventory has no certificate")
	return ""
}

// spoil truncates the inventory's certificate, and mend repairs it.
func (r *room) spoil() {
	text, err := os.ReadFile(r.cert())
	must(r.t, err)
	must(r.t, os.WriteFile(r.cert()+".whole", text, 0o600))
	must(r.t, os.WriteFile(r.cert(), bytes.TrimSuffix(text[:len(text)/2], []byte("\n")), 0o600))
}

func (r *room) mend() { must(r.t, os.Rename(r.cert()+".whole", r.cert())) }

func (r *room) leader() *pair.Component {
	for _, w := range r.Writers {
		if text, err := w.Get(r.ctx(), "/metrics"); err == nil && strings.Contains(text, "\nslicefeed_writer_leader 1\n") {
			return w
		}
	}
	r.t.Fatal("nobody leads")
	return nil
}
