package faults

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// Addresses beside those of the pair.
var (
	replicaAddress = netip.MustParseAddr("10.0.0.16") // second replica of the inventory
	secondAddress  = netip.MustParseAddr("10.0.0.17") // second inventory, whose source is a file
	proxyAddress   = netip.MustParseAddr("10.0.0.40") // proxies to the inventories
)

const (
	secondSubnet = "10.1.1.0/24"
	// probedPort is what the slices list: there a proxy leads to the backend. The client sends its requests to the
	// backend itself.
	probedPort = 31080
)

// env is what the rows use one after the other: an inventory with a second replica, a second inventory, two writers,
// each on a host of its own, and a proxy on each connection between any two parts.
type env struct {
	*pair.Pair

	replica *pair.Component // connections lead there only when a row moves them
	second  *pair.Source    // the inventory of the second cluster
	hosts   map[*pair.Component]*netns.Host

	toSecured, toCloud *faultProxy
	toInventory        map[*pair.Component]*faultProxy // by writer
	toSecond           map[*pair.Component]*faultProxy // by writer
	toConsuming        map[*pair.Component]*faultProxy // by writer
	toBackend          map[netip.Addr]*faultProxy      // for the probes of all writers

	nodes        []*node
	lastAddress  map[cluster]int
	closedBefore map[*pair.Component]int // streams that a writer had logged as closed at the last reset
}

// components returns all processes of ours that run when nothing is disturbed.
func (e *env) components() []*pair.Component {
	return append([]*pair.Component{e.Inventory, e.replica, e.second.Component}, e.Writers...)
}

// newEnv starts everything in the network namespace of the test.
func newEnv(ctx context.Context) (*env, error) {
	programs, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	e := &env{
		hosts: map[*pair.Component]*netns.Host{}, lastAddress: map[cluster]int{}, closedBefore: map[*pair.Component]int{},
		toInventory: map[*pair.Component]*faultProxy{}, toSecond: map[*pair.Component]*faultProxy{},
		toConsuming: map[*pair.Component]*faultProxy{}, toBackend: map[netip.Addr]*faultProxy{},
	}
	e.Pair, err = pair.Start(ctx, pair.Options{
		Programs: programs, Writers: 2, Cloud: pair.CloudOptions{OtherServers: 20, PageLimit: 10},
		// As in lab/e2e: every other setting that has to do with time has its default.
		Inventory: map[string]string{"IONOS_POLL_INTERVAL": "1s", "SOURCE_POLL_INTERVAL": "1s", "IONOS_REQUEST_BUDGET": "6000"},
		Writer: map[string]string{
			"SHRINK_WINDOW": "2s", "HEALTH_CHECK_MODE": "http", // a proxy accepts connections for a dead backend
			"INVENTORY_ADDRESS": "", "INVENTORY_SAN": "", "SECURED_SUBNET_CIDR": "",
		},
	})
	if err != nil {
		return nil, err
	}
	if err := e.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the environment: %w", err), e.close())
	}
	return e, nil
}

func (e *env) prepare(ctx context.Context) error {
	if err := netns.AddAddr(proxyAddress); err != nil {
		return err
	}
	if err := e.connectInventory(); err != nil {
		return err
	}
	var err error
	if e.replica, err = e.AddReplica("inventory-2", replicaAddress); err != nil {
		return err
	}
	if e.second, err = e.AddSource("second", secondAddress, secondSubnet); err != nil {
		return err
	}
	for i, writer := range e.Writers {
		if err := e.connectWriter(i, writer); err != nil {
			return err
		}
	}
	for _, component := range append([]*pair.Component{e.Inventory}, e.Writers...) {
		host, _, err := component.Settle() // it is closed with the process
		if err != nil {
			return err
		}
		e.hosts[component] = host
	}
	patch := fmt.Sprintf(
		`{"metadata":{"annotations":{"slicefeed.dev/source":"default,second"}},"spec":{"ports":[{"port":80,"targetPort":%d}]}}`,
		probedPort,
	)
	_, err = e.ConsumingClient().CoreV1().Services(pair.Namespace).
		Patch(ctx, pair.Service, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change the Service: %w", err)
	}
	return e.reset(ctx)
}

// connectInventory puts proxies between the inventory and its two APIs. They have the address of the API, so that the
// certificates are valid.
func (e *env) connectInventory() (err error) {
	const proxyPort = 7443
	if e.toSecured, err = newFaultProxy(
		"secured API",
		netip.AddrPortFrom(pair.SecuredAddress, proxyPort),
		e.Secured.Endpoint(),
	); err != nil {
		return err
	}
	if err := redirectKubeconfig(e.Inventory, "SECURED_KUBECONFIG", e.toSecured.at); err != nil {
		return err
	}
	cloud, err := netip.ParseAddrPort(strings.TrimPrefix(e.Cloud.URL, "https://"))
	if err != nil {
		return err
	}
	if e.toCloud, err = newFaultProxy("cloud", netip.AddrPortFrom(pair.CloudAddress, proxyPort), cloud); err != nil {
		return err
	}
	e.Inventory.Set("IONOS_API_URL", "https://"+e.toCloud.at.String())
	return nil
}

// connectWriter puts proxies between a writer, both inventories and its API server.
func (e *env) connectWriter(i int, writer *pair.Component) (err error) {
	proxyPort := uint16(7444 + 10*i)
	inventory := netip.AddrPortFrom(pair.InventoryAddress, pair.LinkPort)
	if e.toInventory[writer], err = newFaultProxy(
		"inventory of "+writer.Name,
		netip.AddrPortFrom(proxyAddress, proxyPort),
		inventory,
	); err != nil {
		return err
	}
	second := netip.AddrPortFrom(secondAddress, pair.LinkPort)
	if e.toSecond[writer], err = newFaultProxy(
		"second inventory of "+writer.Name,
		netip.AddrPortFrom(proxyAddress, proxyPort+1),
		second,
	); err != nil {
		return err
	}
	if e.toConsuming[writer], err = newFaultProxy(
		"API of "+writer.Name,
		netip.AddrPortFrom(pair.ConsumingAddress, proxyPort),
		e.Consuming.Endpoint(),
	); err != nil {
		return err
	}
	if err := redirectKubeconfig(writer, "TARGET_KUBECONFIG", e.toConsuming[writer].at); err != nil {
		return err
	}
	text := fmt.Sprintf(
		"sources:\n- {name: default, address: %q, san: %q, cidrs: [%q]}\n- {name: second, address: %q, san: %q, caFile: %q, cidrs: [%q]}\n",
		e.toInventory[writer].at,
		pair.InventorySAN,
		pair.Subnet,
		e.toSecond[writer].at,
		e.second.SAN,
		e.second.CA,
		secondSubnet,
	)
	file := filepath.Join(writer.Dir(), "sources.yaml")
	writer.Set("SOURCES_FILE", file)
	return pki.WriteFile(file, []byte(text))
}

// redirectKubeconfig gives a component a kubeconfig with another address of the API server.
func redirectKubeconfig(component *pair.Component, setting string, to netip.AddrPort) error {
	var file string
	for _, line := range component.Env() {
		if name, value, _ := strings.Cut(line, "="); name == setting {
			file = value
		}
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return fmt.Errorf("redirect %s: %w", component.Name, err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + to.String()
	}
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("redirect %s: %w", component.Name, err)
	}
	redirected := filepath.Join(component.Dir(), "redirected.kubeconfig")
	component.Set(setting, redirected)
	return pki.WriteFile(redirected, raw)
}

func (e *env) proxies() []*faultProxy {
	all := []*faultProxy{e.toSecured, e.toCloud}
	for _, some := range []map[*pair.Component]*faultProxy{e.toInventory, e.toSecond, e.toConsuming} {
		for _, writer := range e.Writers {
			all = append(all, some[writer])
		}
	}
	for _, p := range e.toBackend {
		all = append(all, p)
	}
	return all
}

// resetTimeout allows for the slowest recovery: a watch that is retried every 30 s.
const resetTimeout = 100 * time.Second

// reset repairs everything that a row has left: all connections work, all processes are ready, the nodes are those of
// the beginning, the slices are correct and both inventories have made another observation.
func (e *env) reset(ctx context.Context) error {
	for _, do := range []func(context.Context) error{e.repair, e.observeBoth} {
		ctx, cancel := context.WithTimeoutCause(ctx, resetTimeout, fmt.Errorf("not within %s", resetTimeout))
		err := do(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("reset the environment: %w", err)
		}
	}
	return nil
}

func (e *env) repair(ctx context.Context) error {
	for _, p := range e.proxies() {
		if err := p.repair(ctx); err != nil {
			return err
		}
	}
	e.Cloud.ClearFaults()
	if err := e.restartWriters(ctx); err != nil {
		return err
	}
	if err := e.resetNodes(ctx); err != nil {
		return err
	}
	for _, component := range e.components() {
		if component.Running() {
			continue
		}
		if err := errors.Join(component.Kill(), component.Start(ctx)); err != nil {
			return err
		}
	}
	return e.waitSettled(ctx)
}

// restartWriters restarts those whose streams were closed since the last reset: each time makes them wait longer before
// the next attempt, and no row should inherit that from another one.
func (e *env) restartWriters(ctx context.Context) error {
	const closed = `"msg":"stream closed`
	var all errgroup.Group
	for _, writer := range e.Writers {
		if logged(writer, closed) == e.closedBefore[writer] || !writer.Running() {
			continue
		}
		all.Go(func() error { return restart(ctx, writer) })
	}
	err := all.Wait()
	for _, writer := range e.Writers {
		e.closedBefore[writer] = logged(writer, closed)
	}
	return err
}

func restart(ctx context.Context, component *pair.Component) error {
	if err := terminate(component); err != nil {
		return err
	}
	return component.Start(ctx)
}

func terminate(component *pair.Component) error { return component.Terminate(20 * time.Second) }

// waitSettled waits until the slices are correct, and both writers have the same view.
func (e *env) waitSettled(ctx context.Context) error {
	if _, err := e.waitCorrect(ctx, time.Now()); err != nil {
		return err
	}
	if _, err := e.WaitLeading(ctx); err != nil {
		return err
	}
	for _, writer := range e.Writers {
		for _, c := range []cluster{first, second} {
			if err := waitMetric(ctx, writer, fmt.Sprintf(`slicefeed_writer_source_synced{source="%s"}`, c), equals(1)); err != nil {
				return err
			}
			members := float64(len(e.nodesOf(c)))
			if err := waitMetric(ctx, writer, fmt.Sprintf(`slicefeed_writer_source_members{source="%s"}`, c), equals(members)); err != nil {
				return err
			}
		}
		if err := waitMetric(ctx, writer, `slicefeed_writer_source_membership_synced{source="default"}`, equals(1)); err != nil {
			return err
		}
	}
	if err := e.waitNoProbeFails(ctx); err != nil {
		return err
	}
	for _, inventory := range []*pair.Component{e.Inventory, e.replica} {
		if err := waitMetric(ctx, inventory, addressesSynced, equals(1)); err != nil {
			return err
		}
	}
	return nil
}

const addressesSynced = `slicefeed_inventory_source_synced{part="addresses"}`

func (e *env) waitNoProbeFails(ctx context.Context) error {
	for _, writer := range e.Writers {
		if err := waitMetric(ctx, writer, `slicefeed_writer_probed_endpoints{health="failing"}`, equals(0)); err != nil {
			return err
		}
	}
	return nil
}

// observeBoth has both replicas make one more observation. At rest they make one a minute, and the writers' shrink guard
// needs a newer observation for each further batch: without it, what left in the last row could hold what leaves in the
// next. They observe sooner while no node is READY, and the nodes are served all the same, since they pass their probes.
func (e *env) observeBoth(ctx context.Context) error {
	both := map[*pair.Component]float64{e.Inventory: 0, e.replica: 0}
	for inventory := range both {
		before, err := inventory.Metric(ctx, observations)
		if err != nil {
			return err
		}
		both[inventory] = before
	}
	nodes := e.nodesOf(first)
	for _, ready := range []bool{false, true} {
		for _, n := range nodes {
			if err := n.SetReady(ctx, ready); err != nil {
				return err
			}
		}
		for inventory, before := range both {
			metric, reached := observations, func(now float64) bool { return now > before }
			if ready {
				metric, reached = `slicefeed_inventory_nodes{state="ready"}`, equals(float64(len(nodes)))
			}
			if err := waitMetric(ctx, inventory, metric, reached); err != nil {
				return err
			}
		}
	}
	return nil
}

const observations = "slicefeed_inventory_observations_total"

func equals(want float64) func(float64) bool { return func(is float64) bool { return is == want } }

func waitMetric(ctx context.Context, component *pair.Component, name string, ok func(float64) bool) error {
	return pair.Until(ctx, name+" of "+component.Name+" is as expected", func(ctx context.Context) (bool, error) {
		value, err := component.Metric(ctx, name)
		if err == nil && !ok(value) {
			err = fmt.Errorf("it is %v", value)
		}
		return err == nil, err
	})
}

// eventually waits for what cannot be watched.
func eventually(ctx context.Context, what string, ok func() bool) error {
	const timeout = 30 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %s", timeout))
	defer cancel()
	return pair.Until(ctx, what, func(context.Context) (bool, error) { return ok(), nil })
}

// logged counts the lines with all these texts in all that a component has ever logged.
func logged(component *pair.Component, texts ...string) int {
	raw, err := os.ReadFile(component.Log())
	if err != nil {
		return 0
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			n++
		}
	}
	return n
}

// sliceWrites is how many writes of slices by the writers have succeeded.
func (e *env) sliceWrites(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("not within 20s"))
	defer cancel()
	all, err := e.Writes(ctx)
	n := 0
	for _, w := range all {
		if w.Code < 300 {
			n++
		}
	}
	return n, err
}

// logTails is what the components logged last, for whoever reads about a failure.
func (e *env) logTails() string {
	var text strings.Builder
	for _, component := range e.components() {
		text.WriteString(component.Tail())
	}
	return text.String()
}

func (e *env) close() error {
	err := e.Stop()
	for _, p := range e.proxies() {
		if p != nil {
			p.down()
		}
	}
	for _, host := range e.hosts {
		err = errors.Join(err, host.Close())
	}
	return err
}
