package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pair/audit"
	"github.com/slicefeed/slicefeed/lab/polling"
)

// migration is docs/deploy/migration.md, whose commands are run as they are written there, and the
// old controller.
type migration struct {
	*stage

	page    string
	unused  map[string]bool // commands of the page that have not been run yet
	dir     string          // where they are run
	kubectl string
	old     map[string]string // the old controller's settings
}

// migrate reads the page, and writes its controller.env with the values of the lab.
func (s *stage) migrate() *migration {
	s.t.Helper()
	root, err := pair.Root()
	s.must(err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "deploy", "migration.md"))
	s.must(err)
	programs, err := controlplane.Build(s.ctx(), os.Stderr)
	s.must(err)
	m := &migration{stage: s, page: string(page), unused: map[string]bool{}, dir: s.t.TempDir(), kubectl: programs.Kubectl}
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
		"TARGET_KUBECONFIG": s.writersKubeconfig(), "SOURCE_POLL_INTERVAL": "1s",
	} {
		example = regexp.MustCompile("(?m)^"+name+"=.*$").ReplaceAllLiteralString(example, name+"="+value)
	}
	s.must(os.WriteFile(m.file("controller.env"), []byte(example), 0o600))
	m.old, err = polling.ReadEnv(m.file("controller.env"))
	s.must(err)
	return m
}

// setting is what a half is started with.
func setting(half *pair.Half, name string) string {
	for _, line := range half.Env() {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value
		}
	}
	return ""
}

func (m *migration) file(name string) string { return filepath.Join(m.dir, name) }

// command is the one of the page that is this, or has it in it.
func (m *migration) command(part string) string {
	m.t.Helper()
	_, whole := m.unused[part]
	var found []string
	for command := range m.unused {
		if command == part || !whole && strings.Contains(command, part) {
			found = append(found, command)
		}
	}
	if len(found) != 1 {
		m.t.Fatalf("these commands of the page have %q in them: %q; want one", part, found)
	}
	m.unused[found[0]] = false
	return found[0]
}

// shell runs a command of the page and returns its exit code and answer.
func (m *migration) shell(part string) (int, string) {
	m.t.Helper()
	command := m.command(part)
	cmd := exec.CommandContext(m.ctx(), "sh", "-c", command)
	cmd.Dir = m.dir
	cmd.Env = []string{
		"PATH=" + bin + ":" + filepath.Dir(m.kubectl) + ":" + os.Getenv("PATH"), "HOME=" + m.dir,
		"GORACE=" + os.Getenv("GORACE"), "KUBECONFIG=" + m.Consuming.AdminKubeconfig(),
	}
	said, _ := cmd.CombinedOutput()
	m.t.Logf("$ %s\n%s", command, said)
	return cmd.ProcessState.ExitCode(), string(said)
}

// says wants a command of the page to work, and to say all this.
func (m *migration) says(part string, all ...string) string {
	m.t.Helper()
	code, text := m.shell(part)
	if code != 0 || !containsAll(text, all...) {
		m.t.Errorf("%s: exit code %d, want 0 and %q:\n%s", part, code, all, text)
	}
	return text
}

// split runs the page's commands that split the file, and appends its new lines with the values of
// the lab. A few more only say where things are in the lab.
func (m *migration) split() {
	m.t.Helper()
	m.says("controller.env > inventory.env")
	m.says("controller.env > writer.env")
	for name, half := range map[string]*pair.Half{"inventory.env": m.Inventory, "writer.env": m.writers[0]} {
		names := []string{"ADMIN_ADDRESS", "DEBUG_ADDRESS"}
		if half == m.Inventory {
			names = append(names, "LISTEN_ADDRESS", "IONOS_CA_FILE", "IONOS_POLL_INTERVAL", "IONOS_REQUEST_BUDGET")
		}
		for _, line := range strings.Split(m.command("cat >> "+name), "\n")[1:] {
			if name, _, ok := strings.Cut(line, "="); ok {
				names = append(names, name)
			}
		}
		file, err := os.OpenFile(m.file(name), os.O_APPEND|os.O_WRONLY, 0)
		m.must(err)
		for _, name := range names {
			_, err = file.WriteString(name + "=" + setting(half, name) + "\n")
			m.must(err)
		}
		m.must(file.Close())

		settings, err := polling.ReadEnv(m.file(name)) // these, and no others
		m.must(err)
		for _, line := range half.Env() {
			name, _, _ := strings.Cut(line, "=")
			if _, given := settings[name]; !given && os.Getenv(name) == "" {
				settings[name] = ""
			}
		}
		m.with(half, settings)
	}
}

// serve starts a half with its file, as a command of the page would.
func (m *migration) serve(half *pair.Half, part string) {
	m.t.Helper()
	m.command(part)
	m.must(half.Start(m.ctx()))
}

// startOld starts the old controller, and returns what stops it.
func (m *migration) startOld() (stop func()) {
	m.t.Helper()
	ca, err := os.ReadFile(m.Cloud.CAFile)
	m.must(err)
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(ca)
	log, err := os.Create(m.file("controller.log"))
	m.must(err)
	old := &polling.Controller{
		Env: m.old, Kubectl: m.kubectl, Log: log,
		HTTP: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}},
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan error, 1)
	go func() { done <- old.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
		_ = log.Close() // it was written for the next line alone
		if text, _ := os.ReadFile(log.Name()); m.t.Failed() && len(text) > 0 {
			m.t.Logf("the old controller said:\n%s", text)
		}
	}
	m.t.Cleanup(stop)
	return stop
}

// count is how many writes with this verb there have been: kubectl patches and the writer updates,
// with the same account, since it is the same file.
func (m *migration) count(verb string) int { return len(m.writesBy(verb)) }

func (m *migration) writesBy(verb string) []audit.Write {
	m.t.Helper()
	all, err := m.Writes(m.ctx())
	m.must(err)
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
	m.t.Helper()
	var all []*pair.Worker
	for range n {
		w := m.machine(pair.WorkerOptions{})
		m.must(w.Join(m.ctx()))
		all = append(all, w)
	}
	m.slices("the old controller serves them", serves(addresses(all)...))
	return all
}

func TestMigratesFromThePollingControllerByThePage(t *testing.T) {
	s := enter(t, script{})
	s.may(getServices, patchSlices) // as the old controller; else the account is the writer's
	m := s.migrate()
	stopOld := m.startOld()
	all := addresses(m.served(3))
	since, before := time.Now(), m.get("shop-nodes")

	// step has the page's commands fail the step that they are part of.
	step := func(name string, play func(*migration)) {
		s.step(name, func(s *stage) {
			inner := *m
			inner.stage = s
			play(&inner)
		})
	}
	step("the file as it was is refused by either half", func(m *migration) {
		env, err := os.ReadFile(m.file("controller.env"))
		m.must(err)
		for half, credentials := range map[string]string{"slicefeed-writer": "IONOS_TOKEN, SECURED_KUBECONFIG: ", "slicefeed-inventory": "TARGET_KUBECONFIG: "} {
			code, text := run(m.t, half, strings.Split(string(env), "\n"), "serve")
			if code != 2 || !containsAll(text, credentials, "credentials of the other component must not be set here") {
				m.t.Errorf("%s: exit code %d:\n%s", half, code, text)
			}
		}
	})
	m.split()
	step("so is one with a line left over, in the words of the page", func(m *migration) {
		code, text := m.shell("left-over")
		_, want, _ := strings.Cut(m.page, m.command("left-over")+"\n")
		want, _, _ = strings.Cut(want, "```")
		if diff := cmp.Diff(want, text); code != 2 || diff != "" {
			m.t.Errorf("exit code %d (-documented +said):\n%s", code, diff)
		}
	})
	step("what the page's table says of a setting is so", (*migration).readTable)
	m.says("slicefeed-inventory preflight", "ok    first observation")
	m.serve(m.Inventory, "slicefeed-inventory serve")
	step("beside the old controller the writer would change metadata alone", func(m *migration) {
		if text := m.says("slicefeed-writer preflight", "web/shop can be managed"); strings.Contains(text, "FAIL") {
			m.t.Error("preflight fails")
		}
		changes, _, _ := strings.Cut(m.says("slicefeed-writer plan", "update EndpointSlice shop-nodes"), "\n\nADDRESS")
		if !containsAll(changes, "+ label slicefeed.dev/writer web", "+ owner Service shop") || strings.Contains(changes, " endpoint 1") ||
			strings.Contains(changes, " port ") {
			m.t.Errorf("it would change:\n%s", changes)
		}
	})
	updates := m.count("update")
	step("and writes nothing while it only watches", func(m *migration) {
		writer := m.writers[0]
		writer.Set("STORE_KIND", "memory")
		m.serve(writer, "STORE_KIND=memory")
		m.metric(writer, sourceSynced, equals(1))
		m.until("it has printed what it would write", func() bool { return containsAll(m.log(writer), "shop-nodes", "EndpointSlice") })
		m.must(writer.Terminate(patience))
		writer.Set("STORE_KIND", m.old["STORE_KIND"])
		if n := m.count("update") - updates; n != 0 || m.Leader() != "" {
			m.t.Errorf("%d writes; the Lease is held by %q", n, m.Leader())
		}
	})

	stopOld()
	patches := m.count("patch")
	step("the writer takes the slice over with one write of its metadata", func(m *migration) {
		m.serve(m.writers[0], "./writer.env; slicefeed-writer serve")
		m.slices("it belongs to the Service", owned(m.stage))
		m.metric(m.writers[0], sourceSynced, equals(1))
		m.metric(m.writers[0], `slicefeed_writer_endpoints{namespace="web",service="shop",state="ready"}`, equals(3))
		after := m.slice()
		if diff := cmp.Diff([]any{before.UID, before.Endpoints, before.Ports}, []any{after.UID, after.Endpoints, after.Ports}); diff != "" {
			m.t.Errorf("more than its metadata changed (-before +after):\n%s", diff)
		}
		if writes := m.writesBy("update")[updates:]; len(writes) != 1 || writes[0].Code != 200 || writes[0].Name != "web/shop-nodes" {
			m.t.Errorf("the writes were %+v, want one update", writes)
		}
	})
	step("it is right, as the page says", func(m *migration) {
		m.says(
			"jsonpath='{.metadata.labels}",
			`"endpointslice.kubernetes.io/managed-by":"endpoint-updater"`,
			`"slicefeed.dev/writer":"web"`,
		)
		m.says("kubectl -n web get lease slicefeed-default", "slicefeed-default")
		m.says("kubectl -n web events") // of Services of this name in earlier tests, too
		events, err := m.ConsumingClient().EventsV1().Events(pair.Namespace).List(m.ctx(), metav1.ListOptions{})
		m.must(err)
		for _, e := range events.Items {
			if e.Regarding.UID == m.service.UID {
				m.t.Errorf("there is an Event: %s: %s", e.Reason, e.Note)
			}
		}
		m.says("slicefeed-writer plan", "nothing to write")
	})
	step("and life goes on", func(m *migration) {
		fourth := m.join(1)[0]
		m.must(fourth.Set(backend.Refuse))
		m.slices("its death is noticed", pair.Are(pair.Out, fourth.Address))
		if n := m.count("patch") - patches; n != 0 || m.slice().UID != before.UID {
			m.t.Errorf("%d writes by somebody else; the slice is %s", n, m.slice().UID)
		}
	})
	step("there is a way back", func(m *migration) {
		m.must(m.writers[0].Terminate(patience))
		if text := m.says("holderIdentity"); text != "" {
			m.t.Errorf("the Lease is held by %s", text)
		}
		m.startOld()
		m.slices("the old controller lists what it finds", func(now []*discoveryv1.EndpointSlice) bool {
			return len(now) == 1 && now[0].UID == before.UID && len(now[0].Endpoints) == 3 && serves(all...)(now)
		})
	})
	s.always(since, "all three workers", serves(all...))
	t.Logf("%d writes by the writer, %d by the old controller", m.count("update")-updates, m.count("patch")-patches)
	for command, unused := range m.unused { // adopting is another test's
		if unused && !strings.Contains(command, " adopt ") && !strings.Contains(command, "slicefeed.dev/paused") {
			t.Errorf("the page has a command that nobody has run: %s", command)
		}
	}
}

// readTable holds each row of the page's table against what the halves know.
func (m *migration) readTable() {
	m.t.Helper()
	knows := map[string]string{}
	for _, half := range []string{"inventory", "writer"} {
		_, knows[half] = run(m.t, "slicefeed-"+half, nil, "serve", "--help")
	}
	told := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\| (inventory|writer|both) \\|").FindAllStringSubmatch(m.page, -1) {
		for _, name := range regexp.MustCompile("[A-Z_]+").FindAllString(row[1], -1) {
			told[name] = true
			now := strings.Replace(name, "SECURED_SUBNET_PREFIX", "SECURED_SUBNET_CIDR", 1)
			for half, help := range knows {
				here := strings.Contains(help, "[$"+now+"]") || half == "inventory" && name == "IONOS_TOKEN" // no flag, so no help
				if goes := row[2] == half || row[2] == "both"; goes != here {
					m.t.Errorf("%s goes to the %s: %t; it knows it: %t", name, half, goes, here)
				}
			}
		}
	}
	for name := range m.old {
		if !told[name] {
			m.t.Errorf("%s is in the page's file and not in its table", name)
		}
	}
}

func TestTwoWritersOfOneSliceFightAndTakeNothingAway(t *testing.T) {
	s := enter(t, script{})
	s.may(getServices, patchSlices) // as the old controller; else the account is the writer's
	m := s.migrate()
	stopOld := m.startOld()
	all := addresses(m.served(2))
	since, updates, patches := time.Now(), m.count("update"), m.count("patch")
	m.split()
	s.must(m.Inventory.Start(s.ctx()))
	s.must(m.writers[0].Start(s.ctx()))
	s.slices("the slice is taken over", owned(s))
	s.metric(m.writers[0], sourceSynced, equals(1))

	dead := s.machine(pair.WorkerOptions{})
	s.must(dead.Join(s.ctx()))
	// The old controller may add it first, without conditions: to the writer that is the same, and needs no write.
	s.slices("the new worker serves", serves(dead.Address))
	s.metric(m.writers[0], `slicefeed_writer_endpoints{namespace="web",service="shop",state="ready"}`, equals(3))
	s.must(dead.Set(backend.Refuse)) // the writer goes on to list it, as out, and the other one does not
	note := s.event("RepairsBackedOff").Note
	if !containsAll(note, "shop-nodes", "kubectl-client-side-apply", "Stop the other writer") {
		t.Errorf("the Event says: %s", note)
	}
	stopOld()
	s.slices("the writer has the last word", func(now []*discoveryv1.EndpointSlice) bool {
		return pair.Are(pair.Out, dead.Address)(now) && serves(all...)(now)
	})
	t.Logf("%s\n%d writes by the writer, %d by the old controller", note, m.count("update")-updates, m.count("patch")-patches)
	s.always(since, "both workers", serves(all...))
}
