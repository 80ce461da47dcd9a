// Package charts has both halves installed by their charts, as their users do it: two control
// planes with RBAC, helm, the certificates of deploy/certificates.sh, and stand-in kubelets that run
// the Pods with the tokens of their service accounts. It promises that what runs is what the charts
// say, on nothing but what the charts allow; it refuses to prepare anything by another way than
// the commands that the documentation gives.
package charts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/kubelet"
	"github.com/slicefeed/slicefeed/lab/node"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// What the commands call things: as the documentation does.
const (
	Secured   = "secured" // kubectl's contexts
	Consuming = "consuming"

	Inventory          = "slicefeed-inventory" // releases, and what is in them
	Writer             = "slicefeed-writer"
	InventoryNamespace = "slicefeed"
	WriterNamespace    = pair.Namespace
	InventoryHost      = "inventory.example.org" // where the load balancer is
)

// World is both sides with nothing installed, until Run runs the commands that do it.
type World struct {
	*pair.Pair

	root, dir string
	env       []string
	nodes     map[string]Node // by side
	balancer  io.Closer
}

// Node runs the Pods of a side.
type Node interface {
	// Balance leads an address to the Pods of a Service.
	Balance(service *corev1.Service, at netip.Addr) (io.Closer, error)
	Stop() error
}

// Options describe a world.
type Options struct {
	Programs controlplane.Programs // mandatory
	Bin      string                // directory of the halves; empty: .bin of the checkout
	Cloud    pair.CloudOptions
	Images   []string // archives with the images, for nodes that run containers (see lab/node); empty: stand-ins
}

// Main is the body of a TestMain whose tests start worlds.
func Main(m interface{ Run() int }) { pair.Main(m) }

// Start starts both sides, with a node each. The caller ends them by Stop. It must be called in
// a namespace with pair.Addresses (see netns).
func Start(ctx context.Context, options Options) (*World, error) {
	w := &World{}
	if err := w.start(ctx, options); err != nil {
		return nil, errors.Join(fmt.Errorf("start what charts are installed in: %w", err), w.Stop())
	}
	return w, nil
}

func (w *World) start(ctx context.Context, options Options) (err error) {
	if w.root, err = pair.Root(); err != nil {
		return err
	}
	bin := filepath.Join(w.root, ".bin")
	if options.Bin == "" {
		options.Bin = bin
	}
	if _, err := os.Stat(filepath.Join(bin, "helm")); err != nil {
		return fmt.Errorf("%w: tools/build charts makes it", err)
	}
	w.Pair, err = pair.Start(ctx, pair.Options{
		Programs: options.Programs, Cloud: options.Cloud, Bare: true,
		// As the oldest API servers that are supported are: where it is on, a client that watches
		// needs no permission to list, unless the server cannot answer that way for once.
		// A Node that joins is not tainted: the lab has no controller that takes that away.
		APIServerArg: []string{"--feature-gates=WatchList=false", "--disable-admission-plugins=TaintNodesByCondition"},
	})
	if err != nil {
		return err
	}
	w.dir = filepath.Join(w.Pair.Dir(), "charts")
	for _, dir := range []string{"home", "secured-node", "consuming-node"} {
		if err := os.MkdirAll(filepath.Join(w.dir, dir), 0o700); err != nil {
			return err
		}
	}
	w.env = []string{
		"PATH=" + strings.Join([]string{bin, filepath.Dir(options.Programs.Kubectl), os.Getenv("PATH")}, ":"),
		"HOME=" + filepath.Join(w.dir, "home"), "TMPDIR=" + os.TempDir(), "LC_ALL=C.UTF-8",
		"KUBECONFIG=" + w.Secured.AdminKubeconfig() + ":" + w.Consuming.AdminKubeconfig(),
	}
	w.nodes = map[string]Node{}
	for i, plane := range []*controlplane.ControlPlane{w.Secured, w.Consuming} {
		side, address := plane.Name(), netip.AddrFrom4([4]byte{10, 0, 0, byte(31 + i)})
		pods := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(1 + i), 0}), 24)
		if w.nodes[side], err = w.startNode(ctx, plane, address, pods, options); err != nil {
			delete(w.nodes, side)
			return err
		}
	}
	return nil
}

func (w *World) startNode(
	ctx context.Context,
	plane *controlplane.ControlPlane,
	address netip.Addr,
	pods netip.Prefix,
	options Options,
) (Node, error) {
	dir, hosts := filepath.Join(w.dir, plane.Name()+"-node"), map[string]netip.Addr{InventoryHost: pair.InventoryAddress}
	if len(options.Images) > 0 {
		return node.Start(ctx, node.Options{
			ControlPlane: plane, Address: address, Pods: pods, Hosts: hosts, Images: options.Images, Dir: dir,
		})
	}
	return kubelet.Start(ctx, kubelet.Options{
		ControlPlane: plane, Address: address, Pods: pods, Hosts: hosts, Dir: dir,
		Images: map[string]string{
			"ghcr.io/slicefeed/slicefeed-inventory": filepath.Join(options.Bin, Inventory),
			"ghcr.io/slicefeed/slicefeed-writer":    filepath.Join(options.Bin, Writer),
		},
		Env: []string{"GORACE=atexit_sleep_ms=0"},
	})
}

// Dir is a directory for what commands make; it goes with the world.
func (w *World) Dir() string { return w.dir }

// Env is the environment of commands that act on both sides, as Run has it.
func (w *World) Env() []string { return append([]string{"DIR=" + w.dir}, w.env...) }

// Client is one of a side that may do everything.
func (w *World) Client(side string) *kubernetes.Clientset {
	if side == Secured {
		return w.SecuredClient()
	}
	return w.ConsumingClient()
}

// Run runs a script of the shell in the checkout, with kubectl and helm for both sides, and
// returns what it printed. DIR in it is the world's directory.
func (w *World) Run(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = w.root, w.Env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run %s: %w\n%s", script, err, out)
	}
	return string(out), nil
}

// forLab are the settings that differ from a user's, because the cloud is an emulator and a test
// has no minutes.
func (w *World) forLab() (inventory, writer string) {
	if _, ok := w.nodes[Secured].(*node.Node); ok {
		inventory = " --set service.type=LoadBalancer"
	}
	return inventory + " --set ionos.caConfigMap=ionos-ca --set settings.IONOS_API_URL=" + w.Cloud.URL +
			" --set settings.IONOS_POLL_INTERVAL=1s --set settings.SOURCE_POLL_INTERVAL=1s --set settings.IONOS_REQUEST_BUDGET=6000",
		" --set settings.SHRINK_WINDOW=0s"
}

// Certificates makes certificates for both sides, or renews them, and puts them where they belong.
func (w *World) Certificates(ctx context.Context) error {
	_, err := w.Run(
		ctx,
		`deploy/certificates.sh --dns `+InventoryHost+` --writer-namespace `+WriterNamespace+` all "$DIR/certificates" >"$DIR/commands"
sh -e "$DIR/commands"`,
	)
	return err
}

// TrustCloud puts the CA of the emulated cloud where the inventory finds it.
func (w *World) TrustCloud(ctx context.Context) error {
	_, err := w.Run(ctx, `k="kubectl --context secured -n slicefeed"
$k create namespace slicefeed --dry-run=client -o yaml | $k apply --server-side -f -
$k create configmap ionos-ca --from-file=ca.crt=`+w.Cloud.CAFile+` --dry-run=client -o yaml | $k apply --server-side -f -`)
	return err
}

// Token puts the cloud's token into the secured cluster.
func (w *World) Token(ctx context.Context) error {
	if err := os.WriteFile(filepath.Join(w.dir, "token"), []byte(w.Cloud.Token+"\n"), 0o600); err != nil {
		return err
	}
	_, err := w.Run(ctx, `k="kubectl --context secured -n slicefeed"
$k create secret generic slicefeed-inventory-ionos --from-file=token="$DIR/token" --dry-run=client -o yaml | $k apply --server-side -f -`)
	return err
}

// helmInventory is the command that installs or upgrades the inventory with the example's values.
func (w *World) helmInventory(verb string, flags ...string) string {
	lab, _ := w.forLab()
	return helm(verb, Secured, Inventory, InventoryNamespace, lab, flags)
}

// helmWriter is the one for the writer.
func (w *World) helmWriter(verb string, flags ...string) string {
	_, lab := w.forLab()
	return helm(verb, Consuming, Writer, WriterNamespace, lab, flags)
}

func helm(verb, side, release, namespace, lab string, flags []string) string {
	return fmt.Sprintf("helm --kube-context %[1]s %[2]s %[3]s deploy/%[3]s -n %[4]s -f deploy/%[3]s/examples/minimal.yaml%[5]s %[6]s",
		side, verb, release, namespace, lab, strings.Join(flags, " "))
}

// Balance puts a load balancer in front of the inventory, where the writers look for it.
func (w *World) Balance(ctx context.Context) error {
	if w.balancer != nil {
		return nil
	}
	service, err := w.SecuredClient().CoreV1().Services(InventoryNamespace).Get(ctx, Inventory, metav1.GetOptions{})
	if err != nil {
		return err
	}
	w.balancer, err = w.nodes[Secured].Balance(service, pair.InventoryAddress)
	return err
}

// Pods are those of a half, those that end excepted.
func (w *World) Pods(ctx context.Context, side string) ([]corev1.Pod, error) {
	namespace, name := InventoryNamespace, Inventory
	if side == Consuming {
		namespace, name = WriterNamespace, Writer
	}
	list, err := w.Client(side).CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + name})
	if err != nil {
		return nil, err
	}
	var all []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// Stop ends everything. It is safe to call it on a world that is half started.
func (w *World) Stop() error {
	var errs []error
	for _, n := range w.nodes {
		errs = append(errs, n.Stop())
	}
	if w.balancer != nil {
		errs = append(errs, w.balancer.Close())
	}
	if w.Pair != nil {
		errs = append(errs, w.Pair.Stop())
	}
	return errors.Join(errs...)
}
