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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// Where things are, beside those of the pair.
var (
	replicaAddress = netip.MustParseAddr("10.0.0.16") // the inventory's second replica
	secondAddress  = netip.MustParseAddr("10.0.0.17") // the inventory of another cluster, told by a file
	edgesAddress   = netip.MustParseAddr("10.0.0.40") // of the ways to the inventories
)

const (
	secondSubnet = "10.1.1.0/24"
	// probedPort is what the slices say: there a proxy leads to the backend. The client, whose way to the
	// backends is nobody's subject here, takes the backend's own.
	probedPort = 31080
)

// Scene is one pair that many rows use, one after the other: the inventory and a second replica of
// it, a second source, two writers, each of these on a machine of its own, and a proxy on each way
// that they take. Its fields are for faults to get at.
type Scene struct {
	*pair.Pair

	Replica *pair.Half   // the inventory's second process; ways lead there when a row has them to
	Second  *pair.Source // the other cluster's inventory
	Hosts   map[*pair.Half]*netns.Host

	secured, cloud *edge
	links          map[*pair.Half]*edge // by writer, to the inventory
	seconds        map[*pair.Half]*edge // by writer, to the second source
	stores         map[*pair.Half]*edge // by writer, to the consuming API server
	probes         map[netip.Addr]*edge // by backend, of all writers

	members []*Member
	last    map[Source]int     // the last address given out
	ended   map[*pair.Half]int // streams of a writer, as of the last reset
}

// Halves returns all processes of ours that run in an undisturbed scene.
func (s *Scene) Halves() []*pair.Half {
	return append([]*pair.Half{s.Inventory, s.Replica, s.Second.Half}, s.Writers...)
}

// open starts a scene in the present namespace, with everything undisturbed.
func open(ctx context.Context) (*Scene, error) {
	programs, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	s := &Scene{
		Hosts: map[*pair.Half]*netns.Host{}, last: map[Source]int{}, ended: map[*pair.Half]int{},
		links: map[*pair.Half]*edge{}, seconds: map[*pair.Half]*edge{}, stores: map[*pair.Half]*edge{}, probes: map[netip.Addr]*edge{},
	}
	s.Pair, err = pair.Start(ctx, pair.Options{
		Programs: programs, Writers: 2, Cloud: pair.CloudOptions{OtherServers: 20, PageLimit: 10},
		// As in lab/e2e: everything else that has to do with time is at its default.
		Inventory: map[string]string{"IONOS_POLL_INTERVAL": "1s", "SOURCE_POLL_INTERVAL": "1s", "IONOS_REQUEST_BUDGET": "6000"},
		Writer: map[string]string{
			"SHRINK_WINDOW": "2s", "HEALTH_CHECK_MODE": "http", // a proxy takes connections for a backend that is dead
			"INVENTORY_ADDRESS": "", "INVENTORY_SAN": "", "SECURED_SUBNET_CIDR": "",
		},
	})
	if err != nil {
		return nil, err
	}
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open a scene: %w", err), s.close())
	}
	return s, nil
}

func (s *Scene) build(ctx context.Context) error {
	if err := netns.AddAddr(edgesAddress); err != nil {
		return err
	}
	if err := s.leadInventory(); err != nil {
		return err
	}
	var err error
	if s.Replica, err = s.AddReplica("inventory-2", replicaAddress); err != nil {
		return err
	}
	if s.Second, err = s.AddSource("second", secondAddress, secondSubnet); err != nil {
		return err
	}
	for i, writer := range s.Writers {
		if err := s.leadWriter(i, writer); err != nil {
			return err
		}
	}
	for _, half := range append([]*pair.Half{s.Inventory}, s.Writers...) {
		host, _, err := half.Settle() // it is closed with the process
		if err != nil {
			return err
		}
		s.Hosts[half] = host
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"slicefeed.dev/source":"default,second"}},"spec":{"ports":[{"port":80,"targetPort":%d}]}}`, probedPort)
	_, err = s.ConsumingClient().CoreV1().Services(pair.Namespace).Patch(ctx, pair.Service, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("set the Service: %w", err)
	}
	return s.Reset(ctx)
}

// leadInventory puts proxies on the inventory's two ways. They are at the addresses that they lead
// to, so that certificates hold.
func (s *Scene) leadInventory() (err error) {
	const aside = 7443
	if s.secured, err = newEdge("secured", netip.AddrPortFrom(pair.SecuredAddress, aside), s.Secured.Endpoint()); err != nil {
		return err
	}
	through, err := s.detour(s.Inventory, "SECURED_KUBECONFIG", s.secured.at)
	if err != nil {
		return err
	}
	s.Inventory.Set("SECURED_KUBECONFIG", through)
	direct, err := netip.ParseAddrPort(strings.TrimPrefix(s.Cloud.URL, "https://"))
	if err != nil {
		return err
	}
	if s.cloud, err = newEdge("cloud", netip.AddrPortFrom(pair.CloudAddress, aside), direct); err != nil {
		return err
	}
	s.Inventory.Set("IONOS_API_URL", "https://"+s.cloud.at.String())
	return nil
}

// leadWriter puts proxies on a writer's ways.
func (s *Scene) leadWriter(i int, writer *pair.Half) (err error) {
	aside := uint16(7444 + 10*i)
	inventory := netip.AddrPortFrom(pair.InventoryAddress, pair.LinkPort)
	if s.links[writer], err = newEdge("link of "+writer.Name, netip.AddrPortFrom(edgesAddress, aside), inventory); err != nil {
		return err
	}
	second := netip.AddrPortFrom(secondAddress, pair.LinkPort)
	if s.seconds[writer], err = newEdge("second link of "+writer.Name, netip.AddrPortFrom(edgesAddress, aside+1), second); err != nil {
		return err
	}
	if s.stores[writer], err = newEdge("store of "+writer.Name, netip.AddrPortFrom(pair.ConsumingAddress, aside), s.Consuming.Endpoint()); err != nil {
		return err
	}
	through, err := s.detour(writer, "TARGET_KUBECONFIG", s.stores[writer].at)
	if err != nil {
		return err
	}
	writer.Set("TARGET_KUBECONFIG", through)
	text := fmt.Sprintf("sources:\n- {name: default, address: %q, san: %q, cidrs: [%q]}\n- {name: second, address: %q, san: %q, caFile: %q, cidrs: [%q]}\n",
		s.links[writer].at, pair.InventorySAN, pair.Subnet, s.seconds[writer].at, s.Second.SAN, s.Second.CA, secondSubnet)
	file := filepath.Join(writer.Dir(), "sources.yaml")
	writer.Set("SOURCES_FILE", file)
	return pki.WriteFile(file, []byte(text))
}

// detour is a half's kubeconfig with another address of the API server.
func (s *Scene) detour(half *pair.Half, setting string, to netip.AddrPort) (string, error) {
	var direct string
	for _, line := range half.Env() {
		if name, value, _ := strings.Cut(line, "="); name == setting {
			direct = value
		}
	}
	config, err := clientcmd.LoadFromFile(direct)
	if err != nil {
		return "", fmt.Errorf("lead %s through a proxy: %w", half.Name, err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + to.String()
	}
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("lead %s through a proxy: %w", half.Name, err)
	}
	path := filepath.Join(half.Dir(), "through-edge.kubeconfig")
	return path, pki.WriteFile(path, raw)
}

func (s *Scene) edges() []*edge {
	all := []*edge{s.secured, s.cloud}
	for _, some := range []map[*pair.Half]*edge{s.links, s.seconds, s.stores} {
		for _, writer := range s.Writers {
			all = append(all, some[writer])
		}
	}
	for _, e := range s.probes {
		all = append(all, e)
	}
	return all
}

// resetWithin is for the slowest of all ways back: a watch that is tried again every half a minute.
const resetWithin = 100 * time.Second

// observeWithin allows for an inventory that grants nothing at the moment: it then makes an observation
// within a minute by itself.
const observeWithin = 100 * time.Second

// Reset makes the scene undisturbed again, whatever a row has left: all ways open, all processes up
// and ready, the members as at the beginning, the slices true.
func (s *Scene) Reset(ctx context.Context) error {
	if err := s.reset(ctx); err != nil {
		return err
	}
	if err := s.observeAll(ctx); err != nil {
		return fmt.Errorf("reset the scene: %w", err)
	}
	return nil
}

func (s *Scene) reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, resetWithin, fmt.Errorf("not within %s", resetWithin))
	defer cancel()
	for _, e := range s.edges() {
		if err := e.mend(ctx); err != nil {
			return err
		}
	}
	s.Cloud.ClearFaults()
	if err := s.refresh(ctx); err != nil {
		return fmt.Errorf("reset the scene: %w", err)
	}
	if err := s.crew(ctx); err != nil {
		return fmt.Errorf("reset the scene: %w", err)
	}
	for _, half := range s.Halves() {
		if half.Running() {
			continue
		}
		if err := errors.Join(half.Kill(), half.Start(ctx)); err != nil {
			return fmt.Errorf("reset the scene: %w", err)
		}
	}
	if err := s.settled(ctx); err != nil {
		return fmt.Errorf("reset the scene: %w", err)
	}
	return nil
}

// settled waits until the slices tell the truth, and both writers know it.
func (s *Scene) settled(ctx context.Context) error {
	if _, err := s.WaitTruth(ctx, time.Now()); err != nil {
		return err
	}
	if _, err := s.WaitLeading(ctx); err != nil {
		return err
	}
	for _, writer := range s.Writers {
		for _, source := range []Source{Default, Second} {
			if err := s.waitMetric(ctx, writer, `slicefeed_writer_source_synced{source="`+string(source)+`"}`, equals(1)); err != nil {
				return err
			}
			if err := s.waitMetric(ctx, writer, `slicefeed_writer_source_members{source="`+string(source)+`"}`, equals(float64(s.count(source)))); err != nil {
				return err
			}
		}
		if err := s.waitMetric(ctx, writer, `slicefeed_writer_source_membership_synced{source="default"}`, equals(1)); err != nil {
			return err
		}
	}
	if err := s.probed(ctx); err != nil {
		return err
	}
	for _, inventory := range []*pair.Half{s.Inventory, s.Replica} {
		if err := s.waitMetric(ctx, inventory, `slicefeed_inventory_source_synced{part="addresses"}`, equals(1)); err != nil {
			return err
		}
	}
	return nil
}

// observeAll has both inventories make one more observation.
func (s *Scene) observeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, observeWithin, fmt.Errorf("not within %s", observeWithin))
	defer cancel()
	for _, inventory := range []*pair.Half{s.Inventory, s.Replica} {
		if err := s.observe(ctx, inventory); err != nil {
			return err
		}
	}
	return nil
}

func equals(want float64) func(float64) bool { return func(is float64) bool { return is == want } }

func (s *Scene) waitMetric(ctx context.Context, half *pair.Half, name string, is func(float64) bool) error {
	tick := time.NewTicker(20 * time.Millisecond) // a metric tells nobody when it changes
	defer tick.Stop()
	for {
		value, err := half.Metric(ctx, name)
		if err == nil && is(value) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s of %s, which is %v: %w", name, half.Name, value, errors.Join(context.Cause(ctx), err))
		}
	}
}

// Leader returns the writer that leads and the one that stands by.
func (s *Scene) Leader(ctx context.Context) (leader, standby *pair.Half, err error) {
	if leader, err = s.WaitLeading(ctx); err != nil {
		return nil, nil, err
	}
	for _, writer := range s.Writers {
		if writer != leader {
			standby = writer
		}
	}
	return leader, standby, nil
}

func (s *Scene) close() error {
	err := s.Stop()
	for _, e := range s.edges() {
		if e != nil {
			e.down()
		}
	}
	for _, host := range s.Hosts {
		err = errors.Join(err, host.Close())
	}
	return err
}
