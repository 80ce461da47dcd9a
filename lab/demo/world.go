package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const (
	otherServers      = 240 // that are none of our business
	pageLimit         = 50
	requestsPerSecond = 50
	nicDelay          = 3 * time.Second // of the replacement's NIC
)

// shrinkWindow is short, since everybody who comes in the story goes within a minute.
const shrinkWindow = 2 * time.Second

// writerSettings are those that are not the defaults.
func writerSettings() map[string]string {
	return map[string]string{
		"SHRINK_WINDOW":    shrinkWindow.String(),
		"WATCH_NAMESPACES": pair.Namespace + "," + pair.OtherNamespace,
	}
}

// inventorySettings are those that are not the defaults.
func inventorySettings() map[string]string {
	return map[string]string{
		"IONOS_POLL_INTERVAL":  "1s",
		"IONOS_REQUEST_BUDGET": "6000",
		"SOURCE_POLL_INTERVAL": "1s",
		// Wider than the writer's fence, so that the fence has something to refuse.
		"SECURED_SUBNET_CIDR": "10.0.0.0/16",
	}
}

func (s *story) opening() {
	fmt.Fprintf(s.out, "\n%s\n\n", s.bold("Slicefeed: one cluster's Service, kept pointed at the workers of another"))
	s.sayf(
		`A secured Kubernetes cluster has the workers, a consuming one has a Service without selector. The inventory, beside the first, knows Nodes and the cloud's API; the writer, in the second, writes EndpointSlices. Neither holds a credential of the other's side: between them there is one gRPC stream over mutual TLS.`,
	)
	fmt.Fprintln(s.out)
	s.sayf(
		"Everything here is real except the cloud and the machines: two etcd, two kube-apiservers with RBAC, the two programs as processes, the cloud API over HTTPS (an emulator). Times are from the cause to the watch event that shows the effect.",
	)
	fmt.Fprintln(s.out)
	s.sayf(
		"Shortened for the demo: IONOS_POLL_INTERVAL=1s (default 60s), SOURCE_POLL_INTERVAL=1s (5s), and so IONOS_REQUEST_BUDGET=6000 (120 a minute), SHRINK_WINDOW=2s (60s). All other durations have their defaults.",
	)
}

// play is the order of the scenes.
func (s *story) play(ctx context.Context) error {
	for _, one := range []scene{
		{title: "Two clusters, a cloud, an inventory and two writers start", play: (*story).start},
		{title: "Three workers appear", play: (*story).appear},
		{title: "A worker is replaced", play: (*story).replace},
		{title: "More come and go", play: (*story).comeAndGo},
		{title: "Another Service is managed too: one label", play: (*story).label},
		{title: "The IONOS API fails while nothing changes", play: (*story).cloudFails, quiet: true},
		{title: "The inventory is killed, and cannot see the cloud when it returns", play: (*story).blind, quiet: true},
		{title: "Backends die: one refuses connections, one is silent", play: (*story).backendsDie},
		{title: "The leading writer is killed", play: (*story).leaderDies, quiet: true},
		{title: "The new leader receives an address that is not allowed", play: (*story).fence, quiet: true},
		{title: "The inventory reports no workers at all", play: (*story).empty, quiet: true},
		{title: "Normal operation continues", play: (*story).goesOn},
	} {
		if err := s.act(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) start(ctx context.Context) error {
	s.tookf(
		time.Since(s.began),
		"Both control planes and the cloud are up: %d servers in the datacenter, at most %d in one answer.",
		otherServers,
		pageLimit,
	)
	if err := s.pair.OpenNamespace(ctx, pair.OtherNamespace); err != nil {
		return err
	}
	begun := time.Now()
	// First the inventory: a writer that finds nobody waits a while before it tries again.
	if err := s.pair.Inventory.Start(ctx); err != nil {
		return err
	}
	for _, writer := range s.pair.Writers {
		if err := writer.Start(ctx); err != nil {
			return err
		}
	}
	leader, err := s.pair.WaitLeading(ctx)
	if err != nil {
		return err
	}
	s.tookf(
		time.Since(begun),
		"The inventory and both writers are ready, with only the permissions of the manifests in deploy/. %s leads, the other one is the standby.",
		leader.Name,
	)
	return nil
}

var names = []string{"standardnodes-3xk7a", "standardnodes-9pqw2", "standardnodes-m4c6e"}

func (s *story) appear(ctx context.Context) error {
	var all []netip.Addr
	for i, name := range names {
		w, err := s.pair.AddWorker(pair.WorkerOptions{Name: name, Address: worker(11 + i)})
		if err != nil {
			return err
		}
		s.workers = append(s.workers, w)
		all = append(all, w.Address)
	}
	pages, err := s.pair.Cloud.WaitListing(ctx)
	if err != nil {
		return err
	}
	if pages < 3 {
		return fmt.Errorf("the cloud was listed in %d pages, expected several", pages)
	}
	s.sayf(
		"Their servers are in the cloud, each with a public and a private NIC, between %d others; the inventory has read them all, on %d pages. Now their Nodes join, one after another:",
		otherServers,
		pages,
	)
	for i, w := range s.workers {
		d, err := s.propagated(ctx, w.Join, pair.AreJust(pair.Ready, all[:i+1]...))
		if err != nil {
			return err
		}
		s.tookf(
			d,
			"%s is Ready in the secured cluster; its private address %s is in the consuming cluster's EndpointSlice.",
			w.Name,
			w.Address,
		)
	}
	s.startClient()
	s.sayf("From now on a client sends %d requests a second to what the slices say, as kube-proxy would choose.", requestsPerSecond)
	return s.ask(ctx, s.workers[0].Name, "nodes")
}

func (s *story) replace(ctx context.Context) error {
	old := s.workers[0]
	fresh, err := s.pair.AddWorker(pair.WorkerOptions{Name: "standardnodes-t8z5b", Address: worker(14), NICAfter: nicDelay})
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := fresh.Join(ctx); err != nil {
		return err
	}
	s.sayf("%s joins, but the cloud does not show its private NIC yet. An operator asks why it is missing:", fresh.Name)
	if _, err := s.pair.Cloud.WaitListing(ctx); err != nil {
		return err
	}
	if err := s.ask(ctx, fresh.Name, "nodes"); err != nil {
		return err
	}
	d, err := s.pair.WaitSlicesSince(ctx, begun, pair.Are(pair.Ready, fresh.Address))
	if err != nil {
		return err
	}
	if d < nicDelay {
		return fmt.Errorf("%s was listed %s after it joined, before the cloud showed its NIC", fresh.Name, d)
	}
	s.tookf(
		d-nicDelay,
		"The cloud shows the NIC after %s (and is asked once a second here); %s is in the slice that much later.",
		short(nicDelay),
		fresh.Address,
	)

	before, err := s.writes(ctx)
	if err != nil {
		return err
	}
	if err := old.Cordon(ctx, true); err != nil {
		return err
	}
	d, err = s.propagated(ctx, func(ctx context.Context) error { return old.Drain(ctx, true) }, pair.Are(pair.Draining, old.Address))
	if err != nil {
		return err
	}
	s.drained = time.Now()
	s.tookf(d, "%s is cordoned, which changes nothing, and then drained: its endpoint still serves, but gets no new connections.", old.Name)
	if d, err = s.propagated(ctx, old.Leave, pair.Are(pair.Absent, old.Address)); err != nil {
		return err
	}
	s.tookf(d, "Its Node is deleted: its endpoint is removed.")
	after, err := s.writes(ctx)
	if err != nil {
		return err
	}
	if after-before != 2 {
		return fmt.Errorf("draining and deleting took %d API writes, expected 2", after-before)
	}
	if err := s.client.Settle(ctx); err != nil {
		return err
	}
	s.workers[0] = fresh
	return old.Destroy()
}

// comings is how many workers come and go.
const comings = 8

func (s *story) comeAndGo(ctx context.Context) error {
	first := len(s.samples)
	var extra []*pair.Worker
	for i := range comings {
		w, err := s.pair.AddWorker(pair.WorkerOptions{Name: fmt.Sprintf("standardnodes-x%d", i+1), Address: worker(21 + i)})
		if err != nil {
			return err
		}
		extra = append(extra, w)
	}
	if _, err := s.pair.Cloud.WaitListing(ctx); err != nil {
		return err
	}
	begun := time.Now()
	for _, w := range extra {
		if _, err := s.propagated(ctx, w.Join, pair.Are(pair.Ready, w.Address)); err != nil {
			return err
		}
	}
	s.tookf(time.Since(begun), "%d more workers join, one by one; the slowest took %s.", comings, short(worst(s.samples[first:])))
	if err := s.goAgain(ctx, extra); err != nil {
		return err
	}
	if err := s.client.Settle(ctx); err != nil {
		return err
	}
	for _, w := range extra {
		if err := w.Destroy(); err != nil {
			return err
		}
	}
	return nil
}

// goAgain lets workers leave: as many as may at once, and then the others.
func (s *story) goAgain(ctx context.Context, extra []*pair.Worker) error {
	half := (len(s.workers) + len(extra)) / 2
	select { // the window in which the replaced one left is to be over
	case <-time.After(time.Until(s.drained.Add(shrinkWindow))):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	d, err := s.pair.Propagation(ctx, extra[0].Leave, pair.Are(pair.Absent, extra[0].Address))
	if err != nil {
		return err
	}
	s.tookf(d, "One is removed again. Another one was removed a while ago, so the writer waits for a newer observation.")
	first := len(s.samples)
	begun := time.Now()
	for _, w := range extra[1:half] {
		if _, err := s.propagated(ctx, w.Leave, pair.Are(pair.Absent, w.Address)); err != nil {
			return err
		}
	}
	s.tookf(
		time.Since(begun),
		"%d more are removed, one by one; the slowest took %s. Now half of the workers remain.",
		half-1,
		short(worst(s.samples[first:])),
	)
	var rest []netip.Addr
	left := time.Now()
	for _, w := range extra[half:] {
		rest = append(rest, w.Address)
		if err := w.Leave(ctx); err != nil {
			return err
		}
	}
	event, err := s.pair.WaitEvent(ctx, reasonIs("shrink"))
	if err != nil {
		return err
	}
	s.sayf(
		"The other %d are removed as well. All of them still answer, and the writer removes at most half of the ready endpoints on the inventory's report alone:",
		len(rest),
	)
	s.quoteEvent(event)
	d, err = s.pair.WaitSlicesSince(ctx, left, pair.Are(pair.Absent, rest...))
	if err != nil {
		return err
	}
	s.tookf(d, "The window is over, and the inventory has made a newer observation: they are removed.")
	return nil
}

func worst(samples []time.Duration) (most time.Duration) {
	for _, d := range samples {
		most = max(most, d)
	}
	return most
}

func (s *story) backendsDie(ctx context.Context) error {
	refusing, silent, alive := s.workers[0], s.workers[1], s.workers[2]
	begun := time.Now()
	if err := refusing.Set(backend.Refuse); err != nil {
		return err
	}
	if err := silent.Set(backend.Silent); err != nil {
		return err
	}
	s.sayf("The Nodes stay ready: only the writer's own probes notice (TCP, every 2s, timeout 1s).")
	d, err := s.found(ctx, begun, pair.RefusalBound, pair.Are(pair.Out, refusing.Address))
	if err != nil {
		return err
	}
	s.tookf(d, "The backend of %s refuses connections: its endpoint is listed as not ready.", refusing.Name)
	if d, err = s.found(ctx, begun, pair.SilenceBound, pair.Are(pair.Out, silent.Address)); err != nil {
		return err
	}
	s.tookf(d, "That of %s answers no packet: its endpoint is not ready.", silent.Name)
	s.sayf("%s serves alone. Then both come back:", alive.Name)
	begun = time.Now()
	for _, w := range []*pair.Worker{refusing, silent} {
		if err := w.Set(backend.Serve); err != nil {
			return err
		}
	}
	if d, err = s.pair.WaitSlicesSince(ctx, begun, pair.AreJust(pair.Ready, s.addresses()...)); err != nil {
		return err
	}
	s.tookf(d, "After two passing probes each, all three serve.")
	return nil
}

// found waits for a death to be found out, which must be within its bound.
func (s *story) found(
	ctx context.Context,
	since time.Time,
	bound time.Duration,
	are func([]*discoveryv1.EndpointSlice) bool,
) (time.Duration, error) {
	d, err := s.pair.WaitSlicesSince(ctx, since, are)
	if err == nil && d > bound {
		err = fmt.Errorf("it took %s until a dead backend was not ready, more than %s", d, bound)
	}
	return d, err
}

// ask shows what an operator sees of one node with grpcurl: one part of the answer.
func (s *story) ask(ctx context.Context, node, part string) error {
	request := `{"names":["` + node + `"]}`
	args := append(s.grpcurl(), "-d", request, inventoryAt(), listNodes)
	text, err := exec.CommandContext(ctx, filepath.Join(s.bin, "grpcurl"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("grpcurl: %w: %s", err, text)
	}
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("grpcurl answered %q: %w", text, err)
	}
	if answer[part] == nil {
		return fmt.Errorf("the inventory's answer about %s has no %s: %s", node, part, text)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, answer[part], "", "  "); err != nil {
		return err
	}
	s.quote("$ grpcurl -d '" + request + "' … " + listNodes + " | jq ." + part)
	s.quote(pretty.String())
	return nil
}

const listNodes = "slicefeed.inventory.v1.InventoryOperatorService/ListNodeDetails"

// grpcurl are the arguments with which an operator is let in.
func (s *story) grpcurl() []string {
	o := s.pair.Operator
	return []string{"-cacert", o.CAFile, "-cert", o.CertFile, "-key", o.KeyFile}
}

func inventoryAt() string { return netip.AddrPortFrom(pair.InventoryAddress, pair.LinkPort).String() }

func (s *story) addresses() []netip.Addr {
	var all []netip.Addr
	for _, w := range s.workers {
		all = append(all, w.Address)
	}
	return all
}

func worker(last int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 1, byte(last)}) }
