package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
	"github.com/slicefeed/slicefeed/lab/process"
)

// Where the inventory listens, in a namespace of our own.
const (
	address = "127.0.0.1:9443"
	admin   = "http://127.0.0.1:8080"
	debug   = "http://127.0.0.1:6060"
)

// fleet is the file that the inventory takes its nodes from.
type fleet struct {
	path  string
	nodes []record
}

type record struct {
	Name   string `json:"name"`
	IP     string `json:"private_ip"`
	Ready  bool   `json:"ready"`
	Worker bool   `json:"worker"`
}

func nodeName(i int) string { return fmt.Sprintf("worker-%06d", i) }

// nodeNumber is the inverse: names are as good as numbers, and take less of our memory.
func nodeNumber(name string) (int, error) { return strconv.Atoi(strings.TrimPrefix(name, "worker-")) }

func newFleet(t *testing.T) *fleet {
	dir := filepath.Join(t.TempDir(), "nodes") // watched by the inventory, so nothing else is in it
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := &fleet{path: filepath.Join(dir, "nodes.json")}
	for i := range nodes {
		f.nodes = append(f.nodes, record{Name: nodeName(i), IP: fmt.Sprintf("10.%d.%d.%d", 1+i>>16, i>>8&255, i&255), Ready: true, Worker: true})
	}
	f.replace(t)
	return f
}

// flip alters nodes, Ready to not and back, and returns when the new file was in place.
func (f *fleet) flip(t *testing.T, numbers ...int) time.Time {
	for _, i := range numbers {
		f.nodes[i].Ready = !f.nodes[i].Ready
	}
	return f.replace(t)
}

func (f *fleet) replace(t *testing.T) time.Time {
	t.Helper()
	text, err := json.Marshal(f.nodes)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := os.Rename(f.path+".new", f.path); err != nil {
		t.Fatal(err)
	}
	return now
}

// inventory is the program as a process, and what is needed to call it.
type inventory struct {
	process  *process.Process
	clientCA *pki.CA
	tls      *tls.Config // of a client without a name
}

// The names of clients that are no subscribers of the crowd.
const (
	visitor  = "visitor.example"
	sleeper  = "sleeper.example"
	attacker = "attacker.example"
)

func subscriberName(i int) string { return fmt.Sprintf("client-%03d.example", i%clients) }

func startInventory(t *testing.T, f *fleet) *inventory {
	t.Helper()
	root, err := pair.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	own, err := pki.NewCA("inventory's side")
	if err != nil {
		t.Fatal(err)
	}
	peers, err := pki.NewCA("clients' side")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := own.Issue(pki.Cert{CommonName: "inventory", DNS: []string{"inventory.example"}, Usage: pki.Server})
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := leaf.Write(dir, "tls")
	if err != nil {
		t.Fatal(err)
	}
	peerCA, err := peers.Write(dir, "peer-ca")
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	list.WriteString("clients:\n")
	for i := range clients {
		fmt.Fprintf(&list, "- {san: %s, role: subscriber}\n", subscriberName(i))
	}
	for _, name := range []string{visitor, sleeper, attacker} {
		fmt.Fprintf(&list, "- {san: %s, role: operator}\n", name)
	}
	allowed := filepath.Join(dir, "clients.yaml")
	if err := os.WriteFile(allowed, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	i := &inventory{clientCA: peers, tls: &tls.Config{
		RootCAs: own.Pool(), ServerName: "inventory.example", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13,
	}}
	i.process, err = process.Start(process.Spec{
		Name: "inventory", Path: filepath.Join(root, ".bin", "slicefeed-inventory"), Args: []string{"serve"},
		Log: filepath.Join(dir, "inventory.log"), Env: []string{
			"SOURCE_KIND=file", "INVENTORY_FILE_PATH=" + f.path, "SOURCE_POLL_INTERVAL=1s", "SECURED_SUBNET_CIDR=10.0.0.0/8",
			"LISTEN_ADDRESS=" + address, "ADMIN_ADDRESS=" + strings.TrimPrefix(admin, "http://"), "DEBUG_ADDRESS=" + strings.TrimPrefix(debug, "http://"),
			"TLS_CERT_FILE=" + cert, "TLS_KEY_FILE=" + key, "TLS_PEER_CA_FILE=" + peerCA, "ALLOWED_CLIENTS_FILE=" + allowed,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.process.Stop(20 * time.Second); err != nil {
			t.Errorf("the inventory did not end in order: %v", err)
		}
	})
	i.until(t, "it is ready", time.Minute, func() bool {
		select {
		case <-i.process.Done():
			t.Fatalf("the inventory: %v", i.process.Wait())
		default:
		}
		_, err := get(admin + "/readyz")
		return err == nil
	})
	return i
}

// as is the TLS of a client of that name.
func (i *inventory) as(t *testing.T, name string) *tls.Config {
	t.Helper()
	leaf, err := i.clientCA.Issue(pki.Cert{CommonName: name, DNS: []string{name}, Usage: pki.Client})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf.CertPEM, leaf.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	cfg := i.tls.Clone()
	cfg.Certificates = []tls.Certificate{pair}
	return cfg
}

var web = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func get(url string) (string, error) {
	response, err := web.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return string(body), err
}

// until asks every so often: metrics tell nobody when they change.
func (i *inventory) until(t *testing.T, what string, within time.Duration, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %s it is still not so that %s", within, what)
		}
	}
}

// metrics are the values of all that the inventory counts, by the name with its labels.
type metrics map[string]float64

func (i *inventory) metrics(t *testing.T) metrics {
	t.Helper()
	text, err := get(admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	all := metrics{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && name != "#" {
			all[name] = v
		}
	}
	return all
}

// sum adds up what has the name and all the labels.
func (m metrics) sum(name string, labels ...string) (sum float64) {
next:
	for full, v := range m {
		if n, _, _ := strings.Cut(full, "{"); n != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(full, l) {
				continue next
			}
		}
		sum += v
	}
	return sum
}

// memory is what the process takes, in MB.
type memory struct {
	objects  float64 // after a garbage collection
	live     float64 // with the stacks, which also grow and shrink with what has just been done
	resident float64
	peak     float64 // the most that was ever resident
}

const mb = 1 << 20

// memory takes the least of some readings: the inventory goes on meanwhile, and each of its
// looks at the file makes some MB of garbage.
func (i *inventory) memory(t *testing.T) memory {
	t.Helper()
	least := memory{objects: math.Inf(1), live: math.Inf(1), peak: i.peak(t)}
	for range 8 {
		if _, err := get(debug + "/debug/pprof/heap?gc=1"); err != nil {
			t.Fatal(err)
		}
		m := i.metrics(t)
		objects := m.sum("go_memstats_heap_alloc_bytes") / mb
		least.objects = min(least.objects, objects)
		least.live = min(least.live, objects+m.sum("go_memstats_stack_inuse_bytes")/mb)
		least.resident = m.sum("process_resident_memory_bytes") / mb
	}
	return least
}

// cpu is the time that the process has computed, in seconds.
func (i *inventory) cpu(t *testing.T) float64 {
	t.Helper()
	return i.metrics(t).sum("process_cpu_seconds_total")
}

func (i *inventory) peak(t *testing.T) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.process.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb / 1024
		}
	}
	t.Fatal("the kernel does not say VmHWM")
	return 0
}
