package runbooks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/kubelet"
	"github.com/slicefeed/slicefeed/lab/pair"
)

var (
	cloudAddress     = netip.MustParseAddr("10.0.0.10")
	securedAddress   = netip.MustParseAddr("10.0.0.11")
	consumingAddress = netip.MustParseAddr("10.0.0.12")
	balancerAddress  = netip.MustParseAddr("10.0.0.13") // of inventory.example.org
	securedNode      = netip.MustParseAddr("10.0.0.31")
	consumingNode    = netip.MustParseAddr("10.0.0.32")
)

func TestMain(m *testing.M) {
	controlplane.Main(m, cloudAddress, securedAddress, consumingAddress, balancerAddress, securedNode, consumingNode)
}

// cluster is one side: a control plane with a node for Pods.
type cluster struct {
	plane   *controlplane.ControlPlane
	kubelet *kubelet.Kubelet
	client  *kubernetes.Clientset
	kube    string // kubeconfig of an administrator
}

// world is what the readers of all pages work in, one after the other: each page leaves it as
// the next one needs it.
type world struct {
	t                  *testing.T
	dir                string // where commands are run
	secured, consuming cluster
	cloud              *ionosapi.Cloud
	cloudURL           string
	cloudCA            []byte
	token              atomic.Pointer[string] // what the cloud accepts
	workers            map[string]*worker
	env                []string
}

func begin(t *testing.T) *world {
	t.Helper()
	root, err := pair.Root()
	must(t, err)
	programs, err := controlplane.Build(t.Context(), os.Stderr)
	must(t, err)
	w := &world{t: t, dir: t.TempDir(), workers: map[string]*worker{}}
	must(t, os.Symlink(filepath.Join(root, "deploy"), filepath.Join(w.dir, "deploy")))
	w.startCloud()
	w.secured = w.startCluster(programs, "secured", securedAddress, securedNode, "10.244.1.0/24",
		map[string]string{"ghcr.io/slicefeed/slicefeed-inventory": filepath.Join(root, ".bin", "slicefeed-inventory")})
	w.consuming = w.startCluster(programs, "consuming", consumingAddress, consumingNode, "10.244.2.0/24",
		map[string]string{"ghcr.io/slicefeed/slicefeed-writer": filepath.Join(root, ".bin", "slicefeed-writer")})
	w.startBalancer()
	w.env = []string{
		"PATH=" + strings.Join([]string{filepath.Join(root, ".bin"), filepath.Dir(programs.Kubectl), "/usr/local/bin", "/usr/bin", "/bin"}, ":"),
		"HOME=" + w.dir, "KUBECONFIG=" + w.secured.kube + ":" + w.consuming.kube, "LC_ALL=C.UTF-8",
	}
	return w
}

func (w *world) startCloud() {
	w.cloud = ionosapi.NewCloud()
	must(w.t, w.cloud.PutDatacenter(ionosapi.Datacenter{ID: pair.Datacenter, Name: "production", Location: "de/fra", LANs: []ionosapi.LAN{
		{ID: pair.PublicLAN, Name: "internet", Public: true},
		{ID: pair.PrivateLAN, Name: "workers", IPv4CIDR: pair.Subnet},
	}}))
	first := "a-token"
	w.token.Store(&first)
	must(w.t, os.WriteFile(filepath.Join(w.dir, "token"), []byte(first+"\n"), 0o600))
	emulator, err := ionosapi.Start(ionosapi.Options{
		Cloud: w.cloud, Listen: netip.AddrPortFrom(cloudAddress, 8443).String(),
		Token: func() (string, error) { return *w.token.Load(), nil },
	})
	must(w.t, err)
	w.t.Cleanup(func() { w.ended(emulator.Close()) })
	w.cloudURL, w.cloudCA = emulator.URL(), emulator.CA()
}

func (w *world) startCluster(programs controlplane.Programs, name string, address, node netip.Addr, pods string, images map[string]string) cluster {
	w.t.Helper()
	options := controlplane.Options{
		Programs: programs, Name: name, Address: address, Accounts: true,
		// It would taint each new Node as not ready, which only a controller manager takes away.
		APIServerArg: []string{"--disable-admission-plugins=TaintNodesByCondition"},
	}
	plane, err := controlplane.Start(w.t.Context(), options)
	must(w.t, err)
	w.t.Cleanup(func() { w.ended(plane.Stop()) })
	c := cluster{plane: plane}
	c.client, err = kubernetes.NewForConfig(plane.AdminConfig())
	must(w.t, err)
	c.kubelet, err = kubelet.Start(w.t.Context(), kubelet.Options{
		ControlPlane: plane, Address: node, Pods: netip.MustParsePrefix(pods), Images: images,
		Hosts: map[string]netip.Addr{"inventory.example.org": balancerAddress},
	})
	must(w.t, err)
	w.t.Cleanup(func() { w.ended(c.kubelet.Stop()) })
	c.kube = plane.AdminKubeconfig()
	return c
}

func (w *world) ended(err error) {
	if err != nil {
		w.t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read runs a page, or a part of it, and tells the world's part of it by name.
func (w *world) read(t *testing.T, path, heading string, events map[string]func(context.Context) error) {
	t.Helper()
	steps, err := Read(path, heading)
	must(t, err)
	shell, err := Open(w.dir, w.env)
	must(t, err)
	defer func() { w.ended(shell.Close()) }()
	if heading == "" {
		first, err := Read(docs+"README.md", "First")
		must(t, err)
		steps = slices.Concat(first, steps)
	}
	happened := map[string]bool{}
	for _, step := range steps {
		begun := time.Now()
		if step.Event != "" {
			event, ok := events[step.Event]
			if !ok {
				t.Fatalf("%s, line %d: nothing here makes it happen that %q", path, step.Line, step.Event)
			}
			happened[step.Event] = true
			if err := event(t.Context()); err != nil {
				t.Fatalf("%s, line %d: %s: %v", path, step.Line, step.Event, err)
			}
		} else if err := shell.Do(t.Context(), step); err != nil {
			t.Fatalf("%s, %v%s", path, err, w.look())
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Logf("line %d took %s: %s", step.Line, took.Round(100*time.Millisecond), firstLine(step))
		}
	}
	for name := range events {
		if !happened[name] {
			t.Errorf("%s: no line says that %q", path, name)
		}
	}
}

func firstLine(s Step) string {
	line, _, _ := strings.Cut(s.Event+s.Command, "\n")
	return line
}

// look shows what a person would look at next.
func (w *world) look() string {
	shell, err := Open(w.dir, w.env)
	if err != nil {
		return ""
	}
	defer shell.Close()
	printed, _, _ := shell.Run(context.Background(), `
kubectl --context secured get nodes,pods,services -A
kubectl --context consuming get pods,endpointslices,events -A || :
kubectl --context secured -n slicefeed logs deploy/slicefeed-inventory --tail=20 || :
kubectl --context consuming -n web logs deploy/slicefeed-writer --tail=20 || :
`)
	return "\n\nafter that:\n" + printed
}

// edit replaces text in a file of the reader's.
func (w *world) edit(name, from, to string) error {
	path := filepath.Join(w.dir, name)
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(raw), from) {
		return fmt.Errorf("edit %s: it does not say %q", name, from)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(raw), from, to, 1)), 0o600)
}

// run runs commands that no page shows.
func (w *world) run(ctx context.Context, commands string) error {
	shell, err := Open(w.dir, w.env)
	if err != nil {
		return err
	}
	printed, code, err := shell.Run(ctx, commands)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: code %d: %s", commands, code, printed)
	}
	return errors.Join(err, shell.Close())
}
