package charts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/charts"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/node"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// The names that the pages use.
const (
	secured            = "secured" // contexts of kubectl
	consuming          = "consuming"
	inventory          = "slicefeed-inventory" // releases and their objects
	writer             = "slicefeed-writer"
	inventoryNamespace = "slicefeed"
	writerNamespace    = pair.Namespace
	inventoryHost      = "inventory.example.org" // of the load balancer
)

// verifies is whether the tests that need downloads and nodes run.
var verifies = os.Getenv("SLICEFEED_VERIFY") == "1"

// errNoNodes says why no node can run here; nil: one can.
var errNoNodes = errors.New("part of make kubernetes")

func TestMain(m *testing.M) {
	if !verifies {
		os.Exit(m.Run())
	}
	ctx := context.Background()
	if errNoNodes = node.Missing(); errNoNodes != nil {
		errNoNodes = fmt.Errorf("not run: charts and runbooks on nodes with containerd: %w", errNoNodes)
		os.Exit(m.Run())
	}
	if !netns.Inside() { // inside there is no network
		_, crds := charts.Definitions(ctx)
		_, built := controlplane.BuildPrograms(ctx, os.Stderr, managers...)
		if err := errors.Join(crds, built); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := node.Enter(ctx, pair.Addresses()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// world is both clusters with a node each, in which nothing is installed yet. Commands run in its directory, which has the
// checkout's deploy/.
type world struct {
	*pair.Pair

	t       *testing.T
	dir     string
	env     []string
	nodes   map[string]*node.Node // by cluster
	workers map[string]*pair.Worker
}

func begin(t *testing.T) *world {
	t.Helper()
	if errNoNodes != nil {
		t.Skip(errNoNodes)
	}
	w := &world{t: t, nodes: map[string]*node.Node{}, workers: map[string]*pair.Worker{}}
	root, err := pair.Root()
	w.must(err)
	programs, err := controlplane.Build(t.Context(), os.Stderr)
	w.must(err)
	w.must(netns.AddAddr(pair.InventoryAddress)) // an earlier world's load balancer has it
	w.Pair, err = pair.Start(t.Context(), pair.Options{Programs: programs, Bare: true, APIServerArg: []string{
		// Where it is on, a client that watches needs no permission to list.
		"--feature-gates=WatchList=false",
		// Nothing would remove the taint of a worker that joins.
		"--disable-admission-plugins=TaintNodesByCondition",
	}})
	w.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			w.Keep()
			t.Log("everything is left in", w.Dir())
		}
		w.end(w.Stop())
	})
	w.dir = filepath.Join(w.Dir(), "reader")
	w.must(os.MkdirAll(w.dir, 0o700))
	w.must(os.Symlink(filepath.Join(root, "deploy"), filepath.Join(w.dir, "deploy")))
	w.env = []string{
		"PATH=" + strings.Join([]string{filepath.Join(root, ".bin"), filepath.Dir(programs.Kubectl), os.Getenv("PATH")}, ":"),
		"HOME=" + w.dir, "TMPDIR=" + os.TempDir(), "LC_ALL=C.UTF-8",
		"KUBECONFIG=" + w.Secured.AdminKubeconfig() + ":" + w.Consuming.AdminKubeconfig(),
	}
	images, err := node.Images()
	w.must(err)
	for i, plane := range []*controlplane.ControlPlane{w.Secured, w.Consuming} {
		n, err := node.Start(t.Context(), node.Options{
			ControlPlane: plane, Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(31 + i)}),
			Pods:   netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(1 + i), 0}), 24),
			Hosts:  map[string]netip.Addr{inventoryHost: pair.InventoryAddress},
			Images: images, Dir: filepath.Join(w.Dir(), plane.Name()+"-node"),
		})
		w.must(err)
		w.nodes[plane.Name()] = n
		t.Cleanup(func() { w.end(n.Stop()) })
	}
	w.must(w.newToken(w.Cloud.Token))
	w.followServices()
	return w
}

// followServices gives a Service of type LoadBalancer an address, as the cloud's controller does.
func (w *world) followServices() {
	w.t.Helper()
	services, err := w.SecuredClient().CoreV1().Services(inventoryNamespace).Watch(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range services.ResultChan() {
			s, ok := event.Object.(*corev1.Service)
			if !ok || event.Type != watch.Added || s.Spec.Type != corev1.ServiceTypeLoadBalancer {
				continue
			}
			if _, err := w.nodes[secured].Balance(s, pair.InventoryAddress); err != nil {
				w.t.Error(err)
			}
		}
	}()
	w.t.Cleanup(func() { services.Stop(); <-done })
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) end(err error) {
	if err != nil {
		w.t.Error(err)
	}
}

const patience = 2 * time.Minute

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeoutCause(w.t.Context(), patience, fmt.Errorf("not within %s", patience))
	w.t.Cleanup(cancel)
	return ctx
}

// try runs a script of the shell in the world's directory, and returns all that it prints.
func (w *world) try(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = w.dir, w.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run %s: %w\n%s", script, err, out)
	}
	return string(out), nil
}

// run runs a script that must succeed.
func (w *world) run(script string) string {
	w.t.Helper()
	out, err := w.try(w.ctx(), script)
	w.must(err)
	return out
}

// until calls a function until it returns true.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	ctx := w.ctx()
	if wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) { return is(), nil }) != nil {
		w.t.Fatalf("waited until %s: %v", what, context.Cause(ctx))
	}
}

// edit replaces text in a file of the reader's.
func (w *world) edit(name, from, to string) error {
	path := filepath.Join(w.dir, name)
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(raw), from) {
		return fmt.Errorf("edit %s: it does not contain %q", name, from)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(raw), from, to, 1)), 0o600)
}

// useEmulator has the inventory of inventory.yaml query the emulated cloud, more often than one should query the real one.
func (w *world) useEmulator(ctx context.Context) error {
	_, err := w.try(ctx, `k="kubectl --context secured -n slicefeed"
$k create namespace slicefeed --dry-run=client -o yaml | $k apply --server-side -f -
$k create configmap ionos-ca --from-file=ca.crt=`+w.Cloud.CAFile+` --dry-run=client -o yaml | $k apply --server-side -f -`)
	return errors.Join(err, w.edit("inventory.yaml", "settings:\n", "ionos: {caConfigMap: ionos-ca}\nsettings:\n  IONOS_API_URL: "+
		w.Cloud.URL+"\n  IONOS_POLL_INTERVAL: 1s\n  SOURCE_POLL_INTERVAL: 1s\n  IONOS_REQUEST_BUDGET: 6000\n"))
}

// newToken writes the file of the cloud's token; acceptToken has the cloud accept it, and no other.
func (w *world) newToken(token string) error {
	return os.WriteFile(filepath.Join(w.dir, "token"), []byte(token+"\n"), 0o600)
}

func (w *world) acceptToken() error {
	raw, err := os.ReadFile(filepath.Join(w.dir, "token"))
	if err == nil {
		w.Cloud.SetToken(strings.TrimSpace(string(raw)))
	}
	return err
}

// join makes a worker of the secured cluster, with a backend.
func (w *world) join(ctx context.Context, name, address string) error {
	worker, err := w.AddWorker(pair.WorkerOptions{
		Name: name, Address: netip.MustParseAddr(address),
		Labels: map[string]string{corev1.LabelTopologyZone: ""}, // the pages show nodes without a zone
	})
	if err != nil {
		return err
	}
	w.workers[name] = worker
	return worker.Join(ctx)
}

// pods returns a component's Pods, except those that are being deleted.
func (w *world) pods(cluster string) (pods []corev1.Pod) {
	w.t.Helper()
	client, namespace, name := w.SecuredClient(), inventoryNamespace, inventory
	if cluster == consuming {
		client, namespace, name = w.ConsumingClient(), writerNamespace, writer
	}
	list, err := podsOf(w.ctx(), client, namespace, name)
	w.must(err)
	return list
}

func podsOf(ctx context.Context, client kubernetes.Interface, namespace, release string) (pods []corev1.Pod, err error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + release})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	return pods, nil
}
