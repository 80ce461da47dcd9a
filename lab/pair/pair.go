// Package pair is the whole set-up on one machine: a secured and a consuming control
// plane, a cloud, the two components as real processes with their own credentials, workers
// that come and go, and watches on what becomes of it. It promises that everything dies
// with the program and that a failing start shows the end of the log; it refuses to know
// how the components work: it sees only what an operator could see.
package pair

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair/audit"
)

// Where everything is. Debug listeners are on 127.0.0.x with the last byte of these.
var (
	CloudAddress     = netip.MustParseAddr("10.0.0.10")
	SecuredAddress   = netip.MustParseAddr("10.0.0.11")
	ConsumingAddress = netip.MustParseAddr("10.0.0.12")
	InventoryAddress = netip.MustParseAddr("10.0.0.13")
	firstWriter      = netip.MustParseAddr("10.0.0.21")
)

// What the components are told to use.
const (
	Namespace = "web"  // of the Service and the writers
	Service   = "shop" // the selector-less Service
	NodePort  = 30080  // where the workers' backends listen
	Subnet    = "10.0.1.0/24"

	WriterUser = "system:serviceaccount:" + Namespace + ":slicefeed-writer"
)

const mostWriters = 3

// Addresses are those that the namespace needs, workers' excepted.
func Addresses() []netip.Addr {
	all := []netip.Addr{CloudAddress, SecuredAddress, ConsumingAddress, InventoryAddress}
	for i := range mostWriters {
		all = append(all, writerAddress(i))
	}
	return all
}

func writerAddress(i int) netip.Addr {
	raw := firstWriter.As4()
	raw[3] += byte(i)
	return netip.AddrFrom4(raw)
}

// Main is the body of a TestMain whose tests start pairs.
func Main(m interface{ Run() int }) { controlplane.Main(m, Addresses()...) }

// Options describe a pair. Programs is mandatory.
type Options struct {
	Programs controlplane.Programs
	Bin      string // directory of slicefeed-inventory and slicefeed-writer; empty: .bin of the checkout
	Dir      string // for data, keys and logs; empty: a temporary one, removed by Stop
	Writers  int    // 0: one
	Cloud    CloudOptions
	Bare     bool // without components, and without anything of theirs in the clusters: somebody else installs them

	APIServerArg []string // further arguments of both API servers

	// Settings of the components, by environment name, beside those that the set-up needs, or
	// instead of them; an empty value takes one away.
	Inventory, Writer map[string]string
}

// Pair is everything that runs. Its methods may be called from any goroutine.
type Pair struct {
	*Slices

	Secured, Consuming *controlplane.ControlPlane
	Cloud              *Cloud
	Inventory          *Component
	Writers            []*Component
	Operator           Operator
	CAs                Authorities

	dir    string
	ownDir bool
	root   string

	kubeconfig string // of the inventory, as the set-up made it

	securedClient, consumingClient *kubernetes.Clientset

	stopWatching context.CancelFunc

	mu      sync.Mutex
	workers map[netip.Addr]*Worker
	further []*Component // beside the inventory and the writers
}

// Start starts everything but the components: those are Inventory and Writers, ready to be
// started, or none if Bare. It must be called in a namespace with Addresses (see netns).
func Start(ctx context.Context, options Options) (*Pair, error) {
	p := &Pair{dir: options.Dir, workers: map[netip.Addr]*Worker{}}
	if err := p.start(ctx, options); err != nil {
		return nil, errors.Join(fmt.Errorf("start the pair: %w", err), p.Stop())
	}
	return p, nil
}

func (p *Pair) start(ctx context.Context, options Options) (err error) {
	if p.root, err = Root(); err != nil {
		return err
	}
	if options.Bin == "" {
		options.Bin = filepath.Join(p.root, ".bin")
	}
	if options.Writers = max(1, options.Writers); options.Writers > mostWriters {
		return fmt.Errorf("%d writers: there are addresses for %d", options.Writers, mostWriters)
	}
	if p.dir == "" {
		if p.dir, err = os.MkdirTemp("", "slicefeed-pair-"); err != nil {
			return err
		}
		p.ownDir = true
	}
	if p.Cloud, err = startCloud(filepath.Join(p.dir, "cloud"), options.Cloud); err != nil {
		return err
	}
	if err := p.startControlPlanes(ctx, options); err != nil {
		return err
	}
	if !options.Bare {
		if err := p.hire(ctx, options); err != nil {
			return err
		}
		if err := p.CreateService(ctx); err != nil {
			return err
		}
	}
	return p.watch(ctx)
}

func (p *Pair) watch(ctx context.Context) (err error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stopWatching = stop
	release := context.AfterFunc(ctx, stop) // while the watches begin; later they outlive ctx
	defer release()
	p.Slices, err = follow(watching, p.consumingClient, audit.Log{Path: p.auditFile(), ServerChanged: p.Consuming.APIServerChanged})
	return err
}

func (p *Pair) startControlPlanes(ctx context.Context, options Options) error {
	policy := filepath.Join(p.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(audit.Policy), 0o600); err != nil {
		return err
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		p.Secured, err = controlplane.Start(ctx, controlplane.Options{
			Programs: options.Programs, Name: "secured", Address: SecuredAddress, Dir: filepath.Join(p.dir, "secured"),
			Accounts: options.Bare, // where there are components they have kubeconfigs, and there are no Pods
			// It would taint each new Node as not ready, and only a controller manager
			// would ever take that away.
			APIServerArg: append([]string{"--disable-admission-plugins=TaintNodesByCondition"}, options.APIServerArg...),
		})
		if err == nil {
			p.securedClient, err = kubernetes.NewForConfig(p.Secured.AdminConfig())
		}
		return err
	})
	both.Go(func() (err error) {
		p.Consuming, err = controlplane.Start(ctx, controlplane.Options{
			Programs: options.Programs, Name: "consuming", Address: ConsumingAddress, Dir: filepath.Join(p.dir, "consuming"),
			Accounts:     options.Bare,
			APIServerArg: append([]string{"--audit-policy-file=" + policy, "--audit-log-path=" + p.auditFile()}, options.APIServerArg...),
		})
		if err == nil {
			p.consumingClient, err = kubernetes.NewForConfig(p.Consuming.AdminConfig())
		}
		return err
	})
	return both.Wait()
}

func (p *Pair) auditFile() string { return filepath.Join(p.dir, "audit.log") }

// CreateService makes the Service that is kept pointed at the workers; Start does so unless Bare.
func (p *Pair) CreateService(ctx context.Context) error {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Service},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{
			Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(NodePort),
		}}},
	}
	_, err := p.consumingClient.CoreV1().Services(Namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Service %s/%s: %w", Namespace, Service, err)
	}
	return nil
}

// StartComponents starts the inventory and all writers, and returns when they are ready.
func (p *Pair) StartComponents(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return p.Inventory.Start(ctx) })
	for _, writer := range p.Writers {
		all.Go(func() error { return writer.Start(ctx) })
	}
	return all.Wait()
}

// SecuredClient returns a client of the secured cluster that may do everything.
func (p *Pair) SecuredClient() *kubernetes.Clientset { return p.securedClient }

// ConsumingClient returns a client of the consuming cluster that may do everything.
func (p *Pair) ConsumingClient() *kubernetes.Clientset { return p.consumingClient }

// Dir returns the directory with all keys and logs.
func (p *Pair) Dir() string { return p.dir }

// Writes returns the writes of EndpointSlices by the writers so far.
func (p *Pair) Writes(ctx context.Context) ([]audit.Write, error) {
	return p.audit.Writes(ctx, WriterUser)
}

// Keep makes Stop leave the directory, for whoever wants to read the logs.
func (p *Pair) Keep() { p.ownDir = false }

// Stop ends everything and removes the directory if Start made it. It is safe to call it
// on a pair that has started in part only.
func (p *Pair) Stop() error {
	var errs []error
	p.mu.Lock()
	components := slices.Concat([]*Component{p.Inventory}, p.Writers, p.further)
	p.mu.Unlock()
	for _, component := range components {
		if component != nil {
			errs = append(errs, component.Kill())
		}
	}
	if p.stopWatching != nil {
		p.stopWatching()
	}
	if p.Slices != nil {
		p.wait()
	}
	p.mu.Lock()
	for _, worker := range p.workers {
		errs = append(errs, worker.backend.Close())
	}
	p.mu.Unlock()
	if p.Cloud != nil {
		errs = append(errs, p.Cloud.stop())
	}
	for _, plane := range []*controlplane.ControlPlane{p.Secured, p.Consuming} {
		if plane != nil {
			errs = append(errs, plane.Stop())
		}
	}
	if p.ownDir {
		errs = append(errs, os.RemoveAll(p.dir))
	}
	return errors.Join(errs...)
}

// Root returns the checkout that the program runs in or was built into.
func Root() (string, error) { return controlplane.Checkout() }

// Programs returns the directory of the two components that tests run: with SLICEFEED_RACE=1 those with the race detector.
func Programs() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, ".bin")
	if os.Getenv("SLICEFEED_RACE") == "1" {
		bin = filepath.Join(bin, "race")
	}
	if _, err := os.Stat(filepath.Join(bin, "slicefeed-writer")); err != nil {
		return "", fmt.Errorf("find the components (make build, or make race, builds them): %w", err)
	}
	return bin, nil
}

const readyWithin = 60 * time.Second // a loaded machine may be slow; an idle one needs 1 s

func port(address netip.Addr, n uint16) string { return netip.AddrPortFrom(address, n).String() }

func itoa(n int) string { return strconv.Itoa(n) }
