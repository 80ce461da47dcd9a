// Package contract drives the contracts of the inventory and of the writer with clients of another language, which
// were written from the comments of the proto files alone. It uses the real components and their links.
package contract

import (
	"bufio"
	"net"
	"net/http"
	"net/netip"
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
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pki"
	inventory "github.com/slicefeed/slicefeed/services/inventory/app"
	writer "github.com/slicefeed/slicefeed/services/writer/app"
)

// asComponent makes this program the inventory or the writer: each serves in a process of its own.
const asComponent = "CONTRACT_AS"

var controlPlaneAddress = netip.MustParseAddr("192.0.2.1") // no node has it

func TestMain(m *testing.M) {
	switch os.Getenv(asComponent) {
	case "inventory":
		os.Exit(inventory.Component("test").Main([]string{"serve"}, os.Stdout, os.Stderr))
	case "writer":
		os.Exit(writer.Component("test").Main([]string{"serve"}, os.Stdout, os.Stderr))
	}
	controlplane.Main(m, controlPlaneAddress)
}

// runClient runs a Python client until it ends. A line of its output that names an action asks for it.
func runClient(t *testing.T, python, dir, script, address string, actions map[string]func()) {
	t.Helper()
	descriptors := filepath.Join(dir, "contract.binpb")
	writeDescriptors(t, descriptors)
	client := exec.CommandContext(t.Context(), python, "-B", filepath.Join("testdata", script), descriptors, address,
		filepath.Join(dir, "server-ca.crt"), filepath.Join(dir, "subscriber"), filepath.Join(dir, "operator"))
	client.Stderr = os.Stderr
	out, err := client.StdoutPipe()
	must(t, err)
	must(t, client.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
		if act, ok := actions[lines.Text()]; ok {
			act()
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
		durationpb.File_google_protobuf_duration_proto, inventoryv1.File_slicefeed_inventory_v1_inventory_proto,
		writerv1.File_slicefeed_writer_v1_writer_proto, grpc_health_v1.File_grpc_health_v1_health_proto,
	} {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	raw, err := proto.Marshal(&set)
	must(t, err)
	must(t, os.WriteFile(path, raw, 0o600))
}

// issueCertificates writes those of the servers and the clients, and the list of allowed clients, to the directory.
func issueCertificates(t *testing.T, dir string) {
	t.Helper()
	for name, cas := range map[string]map[string]pki.Usage{
		"server-ca": {"inventory": pki.Server, "writer": pki.Server},
		"client-ca": {"subscriber": pki.Client, "operator": pki.Client},
	} {
		ca, err := pki.NewCA(name)
		must(t, err)
		_, err = ca.Write(dir, name)
		must(t, err)
		for name, usage := range cas {
			leaf, err := ca.Issue(pki.Cert{CommonName: name, DNS: []string{name + ".example"}, Usage: usage})
			must(t, err)
			_, _, err = leaf.Write(dir, name)
			must(t, err)
		}
	}
	const allowed = "clients:\n- {san: subscriber.example, role: subscriber}\n- {san: operator.example, role: operator}\n"
	must(t, os.WriteFile(filepath.Join(dir, "clients.yaml"), []byte(allowed), 0o600))
}

// startComponent starts a component, waits until it is ready, and returns what stops it. The end of the test does too.
func startComponent(t *testing.T, dir, component string, settings ...string) (stop func()) {
	t.Helper()
	admin := freePort(t)
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
	log, err := os.Create(filepath.Join(dir, component+".log"))
	must(t, err)
	process.Stdout, process.Stderr = log, log
	process.Env = append([]string{
		asComponent + "=" + component, "ADMIN_ADDRESS=" + admin, "DEBUG_ADDRESS=" + freePort(t),
		"ALLOWED_CLIENTS_FILE=" + filepath.Join(dir, "clients.yaml"),
	}, settings...)
	must(t, process.Start())
	t.Cleanup(func() { _ = process.Wait() })                            // the test's context has ended by then
	for startedAt := time.Now(); ; time.Sleep(100 * time.Millisecond) { // a real process, so real time
		if response, err := http.Get("http://" + admin + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Since(startedAt) > time.Minute {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the %s is not ready:\n%s", component, text)
		}
	}
	return func() {
		_ = process.Cancel()
		_ = process.Wait()
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
