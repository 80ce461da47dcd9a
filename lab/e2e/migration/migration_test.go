package migration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/audit"
)

// What kubectl needs to look a Service up by its name, and kubectl apply to change a slice.
var (
	getServices = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}}
	patchSlices = rbacv1.PolicyRule{
		APIGroups: []string{"discovery.k8s.io"},
		Resources: []string{"endpointslices"},
		Verbs:     []string{"patch"},
	}
)

// may gives the writer's account rights that it does not have by its Role, until the test ends.
func may(s *e2e.Setup, rules ...rbacv1.PolicyRule) {
	s.T.Helper()
	roles, bindings := s.ConsumingClient().RbacV1().Roles(pair.Namespace), s.ConsumingClient().RbacV1().RoleBindings(pair.Namespace)
	meta := metav1.ObjectMeta{Namespace: pair.Namespace, Name: "besides"}
	_, err := roles.Create(s.Ctx(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	s.Must(err)
	_, err = bindings.Create(s.Ctx(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: pair.Namespace, Name: "slicefeed-writer"}},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.T.Cleanup(func() {
		ctx := context.WithoutCancel(s.T.Context())
		if err := bindings.Delete(ctx, meta.Name, metav1.DeleteOptions{}); err != nil {
			s.T.Error(err)
		}
		if err := roles.Delete(ctx, meta.Name, metav1.DeleteOptions{}); err != nil {
			s.T.Error(err)
		}
	})
}

// migration is docs/deploy/migration.md, whose commands are run as they are written there, and the
// old controller.
type migration struct {
	*e2e.Setup

	page    string
	unused  map[string]bool // commands of the page that have not been run yet
	dir     string          // where they are run
	kubectl string
	old     map[string]string // the old controller's settings
}

// migrate reads the page, and writes its controller.env with the values of the lab.
func migrate(s *e2e.Setup) *migration {
	s.T.Helper()
	root, err := pair.Root()
	s.Must(err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "deploy", "migration.md"))
	s.Must(err)
	programs, err := controlplane.Build(s.Ctx(), os.Stderr)
	s.Must(err)
	m := &migration{Setup: s, page: string(page), unused: map[string]bool{}, dir: s.T.TempDir(), kubectl: programs.Kubectl}
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(m.page, -1) {
		for _, command := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			if !strings.Contains(command, "<<'EOF'") {
				command, _, _ = strings.Cut(command, "\n") // what follows is its answer
			}
			m.unused[strings.TrimSpace(command)] = true
		}
	}
	_, example, _ := strings.Cut(m.page, "```sh\n")
	example, _, _ = strings.Cut(example, "```")
	for name, value := range map[string]string{
		"SECURED_KUBECONFIG": setting(s.Inventory, "SECURED_KUBECONFIG"), "IONOS_TOKEN": s.Cloud.Token, "IONOS_API_URL": s.Cloud.URL,
		"TARGET_KUBECONFIG": s.WriterKubeconfig(), "SOURCE_POLL_INTERVAL": "1s",
	} {
		example = regexp.MustCompile("(?m)^"+name+"=.*$").ReplaceAllLiteralString(example, name+"="+value)
	}
	s.Must(os.WriteFile(m.file("controller.env"), []byte(example), 0o600))
	m.old, err = readEnv(m.file("controller.env"))
	s.Must(err)
	return m
}

// setting is what a component is started with.
func setting(component *pair.Component, name string) string {
	for _, line := range component.Env() {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value
		}
	}
	return ""
}

func (m *migration) file(name string) string { return filepath.Join(m.dir, name) }

// command is the one of the page that is this, or has it in it.
func (m *migration) command(part string) string {
	m.T.Helper()
	_, whole := m.unused[part]
	var found []string
	for command := range m.unused {
		if command == part || !whole && strings.Contains(command, part) {
			found = append(found, command)
		}
	}
	if len(found) != 1 {
		m.T.Fatalf("these commands of the page have %q in them: %q; want one", part, found)
	}
	m.unused[found[0]] = false
	return found[0]
}

// shell runs a command of the page and returns its exit code and answer.
func (m *migration) shell(part string) (int, string) {
	m.T.Helper()
	command := m.command(part)
	cmd := exec.CommandContext(m.Ctx(), "sh", "-c", command)
	cmd.Dir = m.dir
	cmd.Env = []string{
		"PATH=" + e2e.Bin + ":" + filepath.Dir(m.kubectl) + ":" + os.Getenv("PATH"), "HOME=" + m.dir,
		"GORACE=" + os.Getenv("GORACE"), "KUBECONFIG=" + m.Consuming.AdminKubeconfig(),
	}
	said, _ := cmd.CombinedOutput()
	m.T.Logf("$ %s\n%s", command, said)
	return cmd.ProcessState.ExitCode(), string(said)
}

// says wants a command of the page to work, and to say all this.
func (m *migration) says(part string, all ...string) string {
	m.T.Helper()
	code, text := m.shell(part)
	if code != 0 || !e2e.ContainsAll(text, all...) {
		m.T.Errorf("%s: exit code %d, want 0 and %q:\n%s", part, code, all, text)
	}
	return text
}

// answers wants a command of the page to work, and to print what the page shows.
func (m *migration) answers(part string) {
	m.T.Helper()
	_, want, _ := strings.Cut(m.page, "$ "+m.command(part)+"\n")
	want, _, _ = strings.Cut(want, "```")
	want, _, _ = strings.Cut(want, "$ ")
	code, text := m.shell(part)
	text = strings.Replace(text, "slicefeed-lab", "kubectl", 1) // who applies in the lab
	if diff := cmp.Diff(want, text); code != 0 || diff != "" {
		m.T.Errorf("%s: exit code %d (-documented +printed):\n%s", part, code, diff)
	}
}

// split runs the page's commands that split the file, and appends its new lines with the values of
// the lab. A few more only say where things are in the lab.
func (m *migration) split() {
	m.T.Helper()
	m.says("controller.env > inventory.env")
	m.says("controller.env > writer.env")
	for name, component := range map[string]*pair.Component{"inventory.env": m.Inventory, "writer.env": m.Writers[0]} {
		names := []string{"ADMIN_ADDRESS", "DEBUG_ADDRESS"}
		if component == m.Inventory {
			names = append(names, "LISTEN_ADDRESS", "IONOS_CA_FILE", "IONOS_POLL_INTERVAL", "IONOS_REQUEST_BUDGET")
		}
		for _, line := range strings.Split(m.command("cat >> "+name), "\n")[1:] {
			if name, _, ok := strings.Cut(line, "="); ok {
				names = append(names, name)
			}
		}
		file, err := os.OpenFile(m.file(name), os.O_APPEND|os.O_WRONLY, 0)
		m.Must(err)
		for _, name := range names {
			_, err = file.WriteString(name + "=" + setting(component, name) + "\n")
			m.Must(err)
		}
		m.Must(file.Close())

		settings, err := readEnv(m.file(name)) // these, and no others
		m.Must(err)
		for _, line := range component.Env() {
			name, _, _ := strings.Cut(line, "=")
			if _, given := settings[name]; !given && os.Getenv(name) == "" {
				settings[name] = ""
			}
		}
		m.With(component, settings)
	}
}

// serve starts a component with its file, as a command of the page would.
func (m *migration) serve(component *pair.Component, part string) {
	m.T.Helper()
	m.command(part)
	m.Must(component.Start(m.Ctx()))
}

// startOld starts the old controller, and returns what stops it.
func (m *migration) startOld() (stop func()) {
	m.T.Helper()
	ca, err := os.ReadFile(m.Cloud.CAFile)
	m.Must(err)
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(ca)
	log, err := os.Create(m.file("controller.log"))
	m.Must(err)
	old := &controller{
		Env: m.old, Kubectl: m.kubectl, Log: log,
		HTTP: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}},
	}
	ctx, cancel := context.WithCancel(m.T.Context())
	done := make(chan error, 1)
	go func() { done <- old.run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			m.T.Error(err)
		}
		_ = log.Close() // it was written for the next line alone
		if text, _ := os.ReadFile(log.Name()); m.T.Failed() && len(text) > 0 {
			m.T.Logf("the old controller said:\n%s", text)
		}
	}
	m.T.Cleanup(stop)
	return stop
}

// count is how many writes with this verb there have been: kubectl patches and the writer updates,
// with the same account, since it is the same file.
func (m *migration) count(verb string) int { return len(m.writesBy(verb)) }

func (m *migration) writesBy(verb string) []audit.Write {
	m.T.Helper()
	all, err := m.Writes(m.Ctx())
	m.Must(err)
	var by []audit.Write
	for _, write := range all {
		if write.Verb == verb {
			by = append(by, write)
		}
	}
	return by
}

// served lets workers join, and waits until the old controller serves them.
func (m *migration) served(n int) []*pair.Worker {
	m.T.Helper()
	var all []*pair.Worker
	for range n {
		w := m.Machine(pair.WorkerOptions{})
		m.Must(w.Join(m.Ctx()))
		all = append(all, w)
	}
	m.Await("the old controller serves them", e2e.Serves(e2e.Addresses(all)...))
	return all
}

func TestMigratesFromThePollingControllerByThePage(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	may(s, getServices, patchSlices) // as the old controller; else the account is the writer's
	m := migrate(s)
	stopOld := m.startOld()
	all := e2e.Addresses(m.served(3))
	since, before := time.Now(), m.GetSlice("shop-nodes")

	// step has the page's commands fail the step that they are part of.
	step := func(name string, play func(*migration)) {
		s.Step(name, func(s *e2e.Setup) {
			inner := *m
			inner.Setup = s
			play(&inner)
		})
	}
	step("the file as it was is rejected by either component", func(m *migration) {
		env, err := os.ReadFile(m.file("controller.env"))
		m.Must(err)
		for component, credentials := range map[string]string{"slicefeed-writer": "IONOS_TOKEN, SECURED_KUBECONFIG: ", "slicefeed-inventory": "TARGET_KUBECONFIG: "} {
			code, text := e2e.Run(m.T, component, strings.Split(string(env), "\n"), "serve")
			if code != 2 || !e2e.ContainsAll(text, credentials, "credentials of the other component must not be set here") {
				m.T.Errorf("%s: exit code %d:\n%s", component, code, text)
			}
		}
	})
	m.split()
	step("so is one with a line left over, in the words of the page", func(m *migration) {
		code, text := m.shell("left-over")
		_, want, _ := strings.Cut(m.page, m.command("left-over")+"\n")
		want, _, _ = strings.Cut(want, "```")
		if diff := cmp.Diff(want, text); code != 2 || diff != "" {
			m.T.Errorf("exit code %d (-documented +said):\n%s", code, diff)
		}
	})
	step("what the page's table says of a setting is so", (*migration).readTable)
	m.says("slicefeed-inventory preflight", "may list nodes, watch nodes")
	m.serve(m.Inventory, "slicefeed-inventory serve")
	step("beside the old controller the writer would change metadata alone", func(m *migration) {
		m.says("slicefeed-writer preflight", "may list services in web")
		const write = "shop-nodes: update planned"
		_, changes, _ := strings.Cut(m.says("slicefeed-writer plan", write), write)
		if !e2e.ContainsAll(changes, "+ label slicefeed.dev/writer web", "+ owner Service shop") ||
			strings.Contains(changes, " endpoint 1") ||
			strings.Contains(changes, " port ") {
			m.T.Errorf("it would change:\n%s", changes)
		}
	})
	updates := m.count("update")
	step("and writes nothing while it only watches", func(m *migration) {
		writer := m.Writers[0]
		writer.Set("STORE_KIND", "memory")
		m.serve(writer, "STORE_KIND=memory")
		m.AwaitMetric(writer, e2e.SourceSynced, e2e.Equals(1))
		m.Until("it has printed what it would write", func() bool { return e2e.ContainsAll(m.LogOf(writer), "shop-nodes: update planned") })
		m.Must(writer.Terminate(e2e.Patience))
		writer.Set("STORE_KIND", m.old["STORE_KIND"])
		if n := m.count("update") - updates; n != 0 || m.Leader() != "" {
			m.T.Errorf("%d writes; the Lease is held by %q", n, m.Leader())
		}
	})

	stopOld()
	patches := m.count("patch")
	step("the writer takes the slice over with one write of its metadata", func(m *migration) {
		m.serve(m.Writers[0], "./writer.env; slicefeed-writer serve")
		m.Await("it belongs to the Service", e2e.Owned(m.Setup))
		m.AwaitMetric(m.Writers[0], e2e.SourceSynced, e2e.Equals(1))
		m.AwaitMetric(m.Writers[0], `slicefeed_writer_endpoints{namespace="web",service="shop",state="ready"}`, e2e.Equals(3))
		after := m.Slice()
		if diff := cmp.Diff([]any{before.UID, before.Endpoints, before.Ports}, []any{after.UID, after.Endpoints, after.Ports}); diff != "" {
			m.T.Errorf("more than its metadata changed (-before +after):\n%s", diff)
		}
		if writes := m.writesBy("update")[updates:]; len(writes) != 1 || writes[0].Code != 200 || writes[0].Name != "web/shop-nodes" {
			m.T.Errorf("the writes were %+v, want one update", writes)
		}
	})
	step("it is right, as the page says", func(m *migration) {
		m.says("jsonpath='{.metadata.labels}", `"endpointslice.kubernetes.io/managed-by":"endpoint-updater"`,
			`"slicefeed.dev/writer":"web"`)
		m.says("kubectl -n web get lease slicefeed-default", "slicefeed-default")
		m.says("kubectl -n web events") // of Services of this name in earlier tests, too
		events, err := m.ConsumingClient().EventsV1().Events(pair.Namespace).List(m.Ctx(), metav1.ListOptions{})
		m.Must(err)
		for _, e := range events.Items {
			if e.Regarding.UID == m.Service.UID && e.ReportingController == "slicefeed.dev/writer" {
				m.T.Errorf("there is an Event: %s: %s", e.Reason, e.Note)
			}
		}
		m.says("slicefeed-writer plan", "nothing to write")
	})
	step("and life goes on", func(m *migration) {
		fourth := m.Join(1)[0]
		m.Must(fourth.Set(backend.Refuse))
		m.Await("its death is noticed", pair.Are(pair.Out, fourth.Address))
		if n := m.count("patch") - patches; n != 0 || m.Slice().UID != before.UID {
			m.T.Errorf("%d writes by somebody else; the slice is %s", n, m.Slice().UID)
		}
	})
	step("there is a way back", func(m *migration) {
		m.Must(m.Writers[0].Terminate(e2e.Patience))
		if text := m.says("holderIdentity"); text != "" {
			m.T.Errorf("the Lease is held by %s", text)
		}
		m.startOld()
		m.Await("the old controller lists what it finds", func(now []*discoveryv1.EndpointSlice) bool {
			return len(now) == 1 && now[0].UID == before.UID && len(now[0].Endpoints) == 3 && e2e.Serves(all...)(now)
		})
	})
	s.ExpectAlways(since, "all three workers", e2e.Serves(all...))
	t.Logf("%d writes by the writer, %d by the old controller", m.count("update")-updates, m.count("patch")-patches)
	_, byHand, _ := strings.Cut(m.page, sectionByHand)
	for command, unused := range m.unused {
		if unused && !strings.Contains(byHand, "$ "+command) { // those are another test's
			t.Errorf("the page has a command that no test has run: %s", command)
		}
	}
}

// sectionByHand is the page's section about a slice that a person made.
const sectionByHand = "## A slice that a person made"

// readTable holds each row of the page's table against what the components know.
func (m *migration) readTable() {
	m.T.Helper()
	knows := map[string]string{}
	for _, component := range []string{"inventory", "writer"} {
		_, knows[component] = e2e.Run(m.T, "slicefeed-"+component, nil, "serve", "--help")
	}
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\| (inventory|writer|both) \\|").FindAllStringSubmatch(m.page, -1) {
		for _, name := range regexp.MustCompile("[A-Z_]+").FindAllString(row[1], -1) {
			listed[name] = true
			now := strings.Replace(name, "SECURED_SUBNET_PREFIX", "SECURED_SUBNET_CIDR", 1)
			for component, help := range knows {
				here := strings.Contains(help, "[$"+now+"]") || component == "inventory" && name == "IONOS_TOKEN" // no flag, so no help
				if goes := row[2] == component || row[2] == "both"; goes != here {
					m.T.Errorf("%s goes to the %s: %t; it knows it: %t", name, component, goes, here)
				}
			}
		}
	}
	for name := range m.old {
		if !listed[name] {
			m.T.Errorf("%s is in the page's file and not in its table", name)
		}
	}
}

func TestTwoWritersOfOneSliceFightAndTakeNothingAway(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	may(s, getServices, patchSlices) // as the old controller; else the account is the writer's
	m := migrate(s)
	stopOld := m.startOld()
	all := e2e.Addresses(m.served(2))
	since, updates, patches := time.Now(), m.count("update"), m.count("patch")
	m.split()
	s.Must(m.Inventory.Start(s.Ctx()))
	s.Must(m.Writers[0].Start(s.Ctx()))
	s.Await("the slice is taken over", e2e.Owned(s))
	s.AwaitMetric(m.Writers[0], e2e.SourceSynced, e2e.Equals(1))

	dead := s.Machine(pair.WorkerOptions{})
	s.Must(dead.Join(s.Ctx()))
	// The old controller may add it first, without conditions: to the writer that is the same, and needs no write.
	s.Await("the new worker serves", e2e.Serves(dead.Address))
	s.AwaitMetric(m.Writers[0], `slicefeed_writer_endpoints{namespace="web",service="shop",state="ready"}`, e2e.Equals(3))
	s.Must(dead.Set(backend.Refuse)) // the writer goes on to list it, as out, and the other one does not
	note := s.AwaitEvent("RepairsBackedOff").Note
	if !e2e.ContainsAll(note, "shop-nodes", "kubectl-client-side-apply", "Stop the other writer") {
		t.Errorf("the Event says: %s", note)
	}
	stopOld()
	s.Await("the writer writes last", func(now []*discoveryv1.EndpointSlice) bool {
		return pair.Are(pair.Out, dead.Address)(now) && e2e.Serves(all...)(now)
	})
	t.Logf("%s\n%d writes by the writer, %d by the old controller", note, m.count("update")-updates, m.count("patch")-patches)
	s.ExpectAlways(since, "both workers", e2e.Serves(all...))
}

// applyByHand applies a slice as kubectl would on the server's side: conditions are left to what the API assumes.
func applyByHand(s *e2e.Setup, all ...netip.Addr) *discoveryv1.EndpointSlice {
	s.T.Helper()
	manifest := fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: by-hand
  namespace: %s
  labels: {kubernetes.io/service-name: %s}
  annotations: {example.org/note: keep}
addressType: IPv4
ports: [{name: http, port: %d, protocol: TCP}]
endpoints:
`, pair.Namespace, pair.Service, pair.NodePort)
	for _, a := range all {
		manifest += "- addresses: [" + a.String() + "]\n"
	}
	s.Must(s.Consuming.ApplyYAML(s.Ctx(), []byte(manifest)))
	return s.GetSlice("by-hand")
}

// relabel is the page's command that makes the writer take a slice over.
const relabel = "kubectl -n web label endpointslice by-hand --overwrite"

func TestTakesOverASliceAppliedByHandByThePage(t *testing.T) {
	s := e2e.New(t, e2e.Options{Writer: map[string]string{"TARGET_NAMESPACE": "", "TARGET_SERVICE_NAME": ""}})
	writer := s.Writers[0]
	var workers []netip.Addr
	for range 2 {
		w := s.Machine(pair.WorkerOptions{})
		s.Must(w.Join(s.Ctx()))
		workers = append(workers, w.Address)
	}
	before := applyByHand(s, workers...)
	s.Await("it serves", e2e.Serves(workers...))
	since := time.Now()
	s.StartAll()
	earlier := s.WriteCount()
	m := migrate(s)
	m.answers("kubectl -n web get endpointslice by-hand -o")
	m.answers("kubectl -n web get service shop -o")
	m.says("kubectl -n web annotate service shop slicefeed.dev/paused=true")
	s.AwaitMetric(writer, `slicefeed_writer_target_problem{level="warning",namespace="web",reason="Paused",service="shop"}`, e2e.Equals(1))
	m.says(relabel)
	was, now := before.DeepCopy(), s.GetSlice("by-hand")
	was.Labels[discoveryv1.LabelManagedBy] = "slicefeed-default"
	was.ResourceVersion, was.ManagedFields, was.Generation = now.ResourceVersion, now.ManagedFields, now.Generation
	if diff := cmp.Diff(was, now); diff != "" {
		t.Errorf("more than the label changed (-want +got):\n%s", diff)
	}
	if n := s.WriteCount() - earlier; n != 0 {
		t.Errorf("the writer wrote %d times while it was paused", n)
	}
	s.Step("unpaused, the writer takes it over with one write of its metadata", func(s *e2e.Setup) {
		earlier := s.WriteCount()
		m.says("kubectl -n web annotate service shop slicefeed.dev/paused-")
		s.Await("it belongs to the Service", e2e.Owned(s))
		s.AwaitMetric(writer, `slicefeed_writer_endpoints{namespace="web",service="shop",state="ready"}`, e2e.Equals(2))
		after := s.Slice()
		if diff := cmp.Diff(
			[]any{before.UID, before.Endpoints, before.Ports, before.Annotations},
			[]any{after.UID, after.Endpoints, after.Ports, after.Annotations},
		); diff != "" {
			s.T.Errorf("more than its metadata changed (-before +after):\n%s", diff)
		}
		if all := s.WritesSince(earlier); len(all) != 1 || all[0].Verb != "update" || all[0].Code != 200 {
			s.T.Errorf("the writes were %+v, want one update", all)
		}
	})
	s.Step("and it is the writer's from then on", func(s *e2e.Setup) {
		third := s.Join(1)[0]
		now := s.Slice()
		if now.UID != before.UID || !e2e.Serves(append(workers, third.Address)...)([]*discoveryv1.EndpointSlice{now}) {
			s.T.Errorf("the new worker is not in it: %+v", now)
		}
	})
	s.ExpectAlways(since, "both workers", e2e.Serves(workers...))
	_, byHand, _ := strings.Cut(m.page, sectionByHand)
	for command, unused := range m.unused {
		if unused && strings.Contains(byHand, "$ "+command) {
			t.Errorf("the page has a command that no test has run: %s", command)
		}
	}
}

func TestTakingOverASliceBesideARunningWriterNeverTakesAnEndpointAway(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	s.StartAll()
	all := e2e.Addresses(s.Join(2))
	since := time.Now()
	applyByHand(s, all...)
	s.AwaitEvent("ForeignSlices")
	migrate(s).says(relabel)
	s.Await("the two have become one", pair.AreJust(pair.Ready, all...))
	s.Slice()
	s.ExpectAlways(since, "both workers", e2e.Serves(all...))
}
