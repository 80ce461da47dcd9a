package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/pki"
	"github.com/slicefeed/slicefeed/services/inventory/app"
)

// asInventory has this program be the inventory, whose memory is its own then.
const asInventory = "HOSTILE_AS_INVENTORY"

func TestMain(m *testing.M) {
	if os.Getenv(asInventory) != "" {
		os.Exit(app.Component("test").Main([]string{"serve"}, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// The clients of the inventory.
const (
	honest = "honest.example"
	enemy  = "enemy.example"
)

// inventory is the real one as a process of its own, with a file of nodes.
type inventory struct {
	t              *testing.T
	address, admin string
	clientCA       *pki.CA
	tls            *tls.Config
	nodes          []record
	file           string
}

type record struct {
	Name   string `json:"name"`
	IP     string `json:"private_ip"`
	Ready  bool   `json:"ready"`
	Worker bool   `json:"worker"`
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func startInventory(t *testing.T, nodes int) *inventory {
	t.Helper()
	dir := t.TempDir()
	i := &inventory{t: t, address: free(t), admin: free(t), file: filepath.Join(t.TempDir(), "nodes.json")}
	for n := range nodes {
		i.nodes = append(i.nodes, record{fmt.Sprintf("node-%05d", n), fmt.Sprintf("10.0.%d.%d", n>>8, n&255), true, true})
	}
	i.write()
	own, err := pki.NewCA("inventory's side")
	i.must(err)
	i.clientCA, err = pki.NewCA("clients' side")
	i.must(err)
	leaf, err := own.Issue(pki.Cert{CommonName: "inventory", DNS: []string{"inventory.example"}, Usage: pki.Server})
	i.must(err)
	cert, key, err := leaf.Write(dir, "tls")
	i.must(err)
	peerCA, err := i.clientCA.Write(dir, "peer-ca")
	i.must(err)
	allowed := filepath.Join(dir, "clients.yaml")
	i.must(
		os.WriteFile(allowed, fmt.Appendf(nil, "clients:\n- {san: %s, role: subscriber}\n- {san: %s, role: subscriber}\n", honest, enemy),
			0o600),
	)
	i.tls = &tls.Config{RootCAs: own.Pool(), ServerName: "inventory.example", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13}

	log, err := os.Create(filepath.Join(dir, "log"))
	i.must(err)
	process := exec.Command(os.Args[0])
	process.Stdout, process.Stderr = log, log
	process.Env = []string{
		asInventory + "=1",
		"SOURCE_KIND=file",
		"INVENTORY_FILE_PATH=" + i.file,
		"SOURCE_POLL_INTERVAL=1s",
		"SECURED_SUBNET_CIDR=10.0.0.0/8",
		"LISTEN_ADDRESS=" + i.address,
		"ADMIN_ADDRESS=" + i.admin,
		"DEBUG_ADDRESS=" + free(t),
		"TLS_CERT_FILE=" + cert,
		"TLS_KEY_FILE=" + key,
		"TLS_PEER_CA_FILE=" + peerCA,
		"ALLOWED_CLIENTS_FILE=" + allowed,
	}
	i.must(process.Start())
	t.Cleanup(func() {
		process.Process.Signal(os.Interrupt)
		if err := process.Wait(); err != nil {
			text, _ := os.ReadFile(log.Name())
			t.Errorf("the inventory did not end in order: %v\n%s", err, text[max(0, len(text)-4000):])
		}
	})
	// A process of its own, whose one word on this is /readyz: there is nothing to watch.
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if response, err := http.Get("http://" + i.admin + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return i
			}
		}
		if time.Since(began) > time.Minute {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the inventory is not ready\n%s", text)
		}
	}
}

func (i *inventory) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

// write replaces the file, and returns when that was done.
func (i *inventory) write() time.Time {
	i.t.Helper()
	text, err := json.Marshal(i.nodes)
	i.must(err)
	i.must(os.WriteFile(i.file+".new", text, 0o600))
	now := time.Now()
	i.must(os.Rename(i.file+".new", i.file))
	return now
}

// as is the TLS of a client.
func (i *inventory) as(name string) *tls.Config {
	i.t.Helper()
	leaf, err := i.clientCA.Issue(pki.Cert{CommonName: name, DNS: []string{name}, Usage: pki.Client})
	i.must(err)
	pair, err := tls.X509KeyPair(leaf.CertPEM, leaf.KeyPEM)
	i.must(err)
	cfg := i.tls.Clone()
	cfg.Certificates = []tls.Certificate{pair}
	return cfg
}

func (i *inventory) dial(name string, options ...grpc.DialOption) *grpc.ClientConn {
	i.t.Helper()
	conn, err := grpc.NewClient("passthrough:"+i.address, append(options, grpc.WithTransportCredentials(credentials.NewTLS(i.as(name))))...)
	i.must(err)
	i.t.Cleanup(func() { conn.Close() })
	return conn
}

// metric adds up the values of a metric with all the labels.
func (i *inventory) metric(name string, labels ...string) (sum float64) {
	i.t.Helper()
	response, err := http.Get("http://" + i.admin + "/metrics")
	i.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	i.must(err)
next:
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		full, value, _ := strings.Cut(lines.Text(), " ")
		if bare, _, _ := strings.Cut(full, "{"); bare != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(full, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		i.must(err)
		sum += v
	}
	return sum
}

// held is the memory of the inventory's objects and stacks, in MB.
func (i *inventory) held() float64 {
	return (i.metric("go_memstats_heap_alloc_bytes") + i.metric("go_memstats_stack_inuse_bytes")) / (1 << 20)
}

// follow reads a stream of the honest client, and tells when each of its changes came.
func (i *inventory) follow(ctx context.Context) <-chan time.Time {
	i.t.Helper()
	stream, err := inventoryv1.NewInventoryServiceClient(i.dial(honest)).WatchNodes(ctx, &inventoryv1.WatchNodesRequest{})
	i.must(err)
	heard := make(chan time.Time, 1000)
	go func() {
		defer close(heard)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if len(m.GetUpserts())+len(m.GetRemoved()) > 0 && m.GetSynced() {
				heard <- time.Now()
			}
		}
	}()
	return heard
}
