package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const (
	otherServers      = 240 // in the datacenter, and no workers
	pageLimit         = 50
	requestsPerSecond = 50
)

const opening = `
Slicefeed: one cluster's Service, kept pointed at the workers of another

   A secured Kubernetes cluster has the workers, a consuming one has a Service without selector. The
   inventory, beside the first, knows Nodes and the cloud's API; the writer, in the second, writes
   EndpointSlices. Neither holds a credential of the other's side: between them there is one gRPC
   stream over mutual TLS.

   Everything here is real except the cloud and the machines: two etcd, two kube-apiservers with
   RBAC, the two programs as processes, the cloud API over HTTPS (an emulator). Times are from the
   cause to the watch event that shows the effect. IONOS_POLL_INTERVAL and SOURCE_POLL_INTERVAL are
   1s here (default 60s and 5s), SHRINK_WINDOW is 2s (60s); all other durations have their defaults.
`

// step is one part of the story.
type step struct {
	title string
	play  func(*story, context.Context) error
	quiet bool // no EndpointSlice may be written in it
}

// play is the order of the steps.
func (s *story) play(ctx context.Context) error {
	for i, one := range []step{
		{title: "Two clusters, a cloud, an inventory and two writers start", play: (*story).start},
		{title: "Three workers join", play: (*story).join},
		{title: "A worker is replaced", play: (*story).replace},
		{title: "The IONOS API is down, and the inventory is killed", play: (*story).blind, quiet: true},
		{title: "The leading writer is killed", play: (*story).leaderDies, quiet: true},
		{title: "Normal operation continues", play: (*story).goOn},
	} {
		fmt.Fprintf(s.out, "\n%d. %s\n", i+1, one.title)
		if err := s.playOne(ctx, one); err != nil {
			return fmt.Errorf("%d. %s: %w", i+1, one.title, err)
		}
	}
	return nil
}

func (s *story) playOne(ctx context.Context, one step) error {
	const within = time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %s", within))
	defer cancel()
	before, err := s.pair.Writes(ctx)
	if err != nil {
		return err
	}
	if err := one.play(s, ctx); err != nil {
		return err
	}
	after, err := s.pair.Writes(ctx)
	if err != nil {
		return err
	}
	if one.quiet {
		if n := len(after) - len(before); n > 0 {
			return fmt.Errorf("%d API writes on EndpointSlices, though nothing changed", n)
		}
		s.sayf("- no API write on any EndpointSlice meanwhile")
	}
	return s.noneFailed()
}

func (s *story) start(ctx context.Context) error {
	s.tookf(time.Since(s.began), "Both control planes and the cloud are up: %d servers in the datacenter, at most %d in one response.",
		otherServers, pageLimit)
	begun := time.Now()
	// First the inventory: a writer that cannot connect waits before it tries again.
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
	s.tookf(time.Since(begun), "The inventory and both writers are ready, with only the permissions of the manifests in deploy/. "+
		"%s leads, the other one is the standby.", leader.Name)
	return nil
}

// propagated waits until a change of a Node shows in the slices, and keeps the time.
func (s *story) propagated(
	ctx context.Context, change func(context.Context) error, are func([]*discoveryv1.EndpointSlice) bool,
) (time.Duration, error) {
	d, err := s.pair.Propagation(ctx, change, are)
	if err == nil {
		s.samples = append(s.samples, d)
	}
	return d, err
}

// add adds a machine that the cloud lists.
func (s *story) add(ctx context.Context, name string, last byte) (*pair.Worker, error) {
	w, err := s.pair.AddWorker(pair.WorkerOptions{Name: name, Address: netip.AddrFrom4([4]byte{10, 0, 1, last})})
	if err != nil {
		return nil, err
	}
	_, err = s.pair.Cloud.WaitListing(ctx)
	return w, err
}

// joins has a worker's Node join.
func (s *story) joins(ctx context.Context, w *pair.Worker) error {
	s.workers = append(s.workers, w)
	d, err := s.propagated(ctx, w.Join, pair.AreJust(pair.Ready, s.addresses()...))
	if err != nil {
		return err
	}
	s.tookf(d, "%s is Ready in the secured cluster; its private address %s is in the consuming cluster's EndpointSlice.", w.Name, w.Address)
	return nil
}

func (s *story) join(ctx context.Context) error {
	for i, name := range []string{"standardnodes-3xk7a", "standardnodes-9pqw2", "standardnodes-m4c6e"} {
		w, err := s.add(ctx, name, byte(11+i))
		if err != nil {
			return err
		}
		if err := s.joins(ctx, w); err != nil {
			return err
		}
	}
	s.startClient()
	s.sayf("From now on a client sends %d requests a second to what the slices list, as kube-proxy would choose.", requestsPerSecond)
	return nil
}

func (s *story) replace(ctx context.Context) error {
	fresh, err := s.add(ctx, "standardnodes-t8z5b", 14)
	if err != nil {
		return err
	}
	if err := s.joins(ctx, fresh); err != nil {
		return err
	}
	before, err := s.pair.Writes(ctx)
	if err != nil {
		return err
	}
	old := s.workers[0]
	if err := old.Cordon(ctx, true); err != nil {
		return err
	}
	d, err := s.propagated(ctx, func(ctx context.Context) error { return old.Drain(ctx, true) }, pair.Are(pair.Draining, old.Address))
	if err != nil {
		return err
	}
	s.tookf(d, "%s is cordoned, which changes nothing, and then drained: its endpoint still serves, but gets no new connections.", old.Name)
	if d, err = s.propagated(ctx, old.Leave, pair.Are(pair.Absent, old.Address)); err != nil {
		return err
	}
	s.tookf(d, "Its Node is deleted: its endpoint is removed.")
	after, err := s.pair.Writes(ctx)
	if err != nil {
		return err
	}
	if n := len(after) - len(before); n != 2 {
		return fmt.Errorf("draining and deleting took %d API writes, want 2", n)
	}
	if err := s.client.Settle(ctx); err != nil {
		return err
	}
	s.workers = s.workers[1:]
	return old.Destroy()
}

func (s *story) blind(ctx context.Context) error {
	outage, err := s.pair.Cloud.AddFault(ionosapi.Fault{Kind: ionosapi.Unavailable})
	if err != nil {
		return err
	}
	if err := s.pair.Inventory.Kill(); err != nil {
		return err
	}
	s.sayf("The inventory is killed (SIGKILL) while the IONOS API responds with 503, and restarted immediately.")
	begun := time.Now()
	if err := s.pair.Inventory.Launch(); err != nil {
		return err
	}
	if err := s.pair.WaitSubscribed(ctx, len(s.pair.Writers)); err != nil {
		return err
	}
	s.tookf(time.Since(begun), "It is back, and both writers have reconnected.")
	if s.pair.Inventory.Check(ctx, "/readyz") == nil {
		return errors.New("the inventory is ready, though it cannot have read the cloud")
	}
	event, err := s.pair.WaitEvent(ctx, func(e *eventsv1.Event) bool {
		return e.Type == corev1.EventTypeWarning && strings.Contains(strings.ToLower(e.Reason), "trust")
	})
	if err != nil {
		return err
	}
	s.sayf("It knows the Nodes but no addresses, and reports that instead of an empty list. So the writers keep the current endpoints, "+
		"with the Event %s on the Service.", event.Reason)
	if err := s.pair.Cloud.RemoveFault(outage); err != nil {
		return err
	}
	begun = time.Now()
	if err := s.pair.Inventory.Ready(ctx); err != nil {
		return err
	}
	s.tookf(time.Since(begun), "The IONOS API is back: the inventory makes a complete observation, with the same nodes as before.")
	return s.allServe()
}

func (s *story) leaderDies(ctx context.Context) error {
	leader, err := s.pair.Leading(ctx)
	if err != nil {
		return err
	}
	holder := s.pair.Leader()
	begun := time.Now()
	if err := leader.Kill(); err != nil {
		return err
	}
	s.sayf("%s is killed (SIGKILL), so its Lease is not released; it expires after 12 s.", leader.Name)
	if _, err := s.pair.WaitLeader(ctx, holder); err != nil {
		return err
	}
	next, err := s.pair.WaitLeading(ctx)
	if err != nil {
		return err
	}
	s.tookf(time.Since(begun), "%s leads. It subscribed and probed all the time, so it has nothing to write.", next.Name)
	if err := leader.Start(ctx); err != nil {
		return err
	}
	s.sayf("%s is started again, as a standby.", leader.Name)
	return s.allServe()
}

func (s *story) goOn(ctx context.Context) error {
	w, err := s.add(ctx, "standardnodes-w2h9r", 15)
	if err != nil {
		return err
	}
	return s.joins(ctx, w)
}

// allServe returns an error unless the slices have just the present workers, all ready.
func (s *story) allServe() error {
	if !pair.AreJust(pair.Ready, s.addresses()...)(s.pair.Now()) {
		return fmt.Errorf("not all workers serve, and no others; the EndpointSlices have: %s", pair.Describe(s.pair.Now()))
	}
	return nil
}

func (s *story) addresses() (all []netip.Addr) {
	for _, w := range s.workers {
		all = append(all, w.Address)
	}
	return all
}
