// Package contract drives the contract of the inventory with a client of another language, which was written
// from the comments of inventory.proto alone. It uses the real inventory and its link.
package contract

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/lab/pki"
	"github.com/slicefeed/slicefeed/services/inventory/app"
)

// asInventory makes this program the inventory: it serves in a process of its own.
const asInventory = "CONTRACT_AS_INVENTORY"

func TestMain(m *testing.M) {
	if os.Getenv(asInventory) != "" {
		os.Exit(app.Component("test").Main([]string{"serve"}, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

const nodes = 1200

func TestPythonClientFollowsTheContract(t *testing.T) {
	python := findPython(t)
	dir := t.TempDir()
	address := startInventory(t, dir)
	writeDescriptors(t, filepath.Join(dir, "contract.binpb"))

	client := exec.CommandContext(t.Context(), python, "testdata/client.py", filepath.Join(dir, "contract.binpb"), address,
		filepath.Join(dir, "server-ca.crt"), filepath.Join(dir, "subscriber"), filepath.Join(dir, "operator"))
	client.Stderr = os.Stderr
	out, err := client.StdoutPipe()
	must(t, err)
	must(t, client.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
		if lines.Text() == "change" {
			writeNodes(t, dir, 1)
		}
	}
	if err := client.Wait(); err != nil {
		t.Error(err)
	}
}

// findPython returns a Python with gRPC, such as that of Debian's package python3-grpcio.
func findPython(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import grpc, google.protobuf").Run() == nil {
			return python
		}
	}
	const missing = "no Python with gRPC: apt-get install python3-grpcio python3-protobuf"
	if os.Getenv("SLICEFEED_VERIFY") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing) // make test needs nothing beyond Go; make outside does not skip
	return ""
}

// writeDescriptors writes what a client is generated from, in the order of the imports.
func writeDescriptors(t *testing.T, path string) {
	t.Helper()
	var set descriptorpb.FileDescriptorSet
	for _, file := range []protoreflect.FileDescriptor{
		durationpb.File_google_protobuf_duration_proto, inventoryv1.File_slicefeed_inventory_v1_inventory_proto, grpc_health_v1.File_grpc_health_v1_health_proto,
	} {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	raw, err := proto.Marshal(&set)
	must(t, err)
	must(t, os.WriteFile(path, raw, 0o600))
}

// writeNodes replaces the inventory's file: all nodes are ready except one; -1: none.
func writeNodes(t *testing.T, dir string, notReady int) {
	t.Helper()
	type record struct {
		Name   string `json:"name"`
		IP     string `json:"private_ip"`
		Ready  bool   `json:"ready"`
		Worker bool   `json:"worker"`
	}
	var all []record
	for n := range nodes {
		all = append(all, record{fmt.Sprintf("worker-%05d", n), fmt.Sprintf("10.0.%d.%d", n>>8, n&255), n != notReady, true})
	}
	text, err := json.Marshal(all)
	must(t, err)
	file := filepath.Join(dir, "nodes.json")
	must(t, os.WriteFile(file+".new", text, 0o600))
	must(t, os.Rename(file+".new", file))
}

// startInventory starts an inventory with a file of nodes, and writes what its clients need to the directory.
func startInventory(t *testing.T, dir string) (address string) {
	t.Helper()
	writeNodes(t, dir, -1)
	server, err := pki.NewCA("servers")
	must(t, err)
	clients, err := pki.NewCA("clients")
	must(t, err)
	_, err = server.Write(dir, "server-ca")
	must(t, err)
	clientCA, err := clients.Write(dir, "client-ca")
	must(t, err)
	issue := func(ca *pki.CA, name string, usage pki.Usage) {
		leaf, err := ca.Issue(pki.Cert{CommonName: name, DNS: []string{name + ".example"}, Usage: usage})
		must(t, err)
		_, _, err = leaf.Write(dir, name)
		must(t, err)
	}
	issue(server, "inventory", pki.Server)
	issue(clients, "subscriber", pki.Client)
	issue(clients, "operator", pki.Client)
	allowed := filepath.Join(dir, "clients.yaml")
	must(t, os.WriteFile(allowed, []byte("clients:\n- {san: subscriber.example, role: subscriber}\n- {san: operator.example, role: operator}\n"), 0o600))

	address, admin := freePort(t), freePort(t)
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	process.Stdout, process.Stderr = log, log
	process.Env = []string{
		asInventory + "=1", "SOURCE_KIND=file", "INVENTORY_FILE_PATH=" + filepath.Join(dir, "nodes.json"), "SOURCE_POLL_INTERVAL=1s",
		"SECURED_SUBNET_CIDR=10.0.0.0/8", "LISTEN_ADDRESS=" + address, "ADMIN_ADDRESS=" + admin, "DEBUG_ADDRESS=" + freePort(t),
		"TLS_CERT_FILE=" + filepath.Join(dir, "inventory.crt"), "TLS_KEY_FILE=" + filepath.Join(dir, "inventory.key"),
		"TLS_PEER_CA_FILE=" + clientCA, "ALLOWED_CLIENTS_FILE=" + allowed,
	}
	must(t, process.Start())
	t.Cleanup(func() { _ = process.Wait() })                            // the test's context has ended by then
	for startedAt := time.Now(); ; time.Sleep(100 * time.Millisecond) { // a real process, so real time
		if response, err := http.Get("http://" + admin + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return address
			}
		}
		if time.Since(startedAt) > time.Minute {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the inventory is not ready:\n%s", text)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
