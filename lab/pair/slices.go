package pair

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/lab/pair/audit"
	"github.com/slicefeed/slicefeed/lab/pair/watch"
)

// Slices is what can be seen of our work in the consuming cluster: the Service's
// EndpointSlices, the Events about it, the writers' Lease.
type Slices struct {
	endpoints *watch.Set[*discoveryv1.EndpointSlice]
	events    *watch.Set[*eventsv1.Event]
	leases    *watch.Set[*coordinationv1.Lease]
	audit     audit.Log
}

func follow(ctx context.Context, client *kubernetes.Clientset, log audit.Log) (*Slices, error) {
	s := &Slices{audit: log}
	var err error
	ofService := cache.NewFilteredListWatchFromClient(
		client.DiscoveryV1().RESTClient(),
		"endpointslices",
		Namespace,
		func(o *metav1.ListOptions) {
			o.LabelSelector = discoveryv1.LabelServiceName + "=" + Service
		},
	)
	if s.endpoints, err = watch.Follow(ctx, ofService, &discoveryv1.EndpointSlice{}); err != nil {
		return s, err
	}
	events := cache.NewListWatchFromClient(client.EventsV1().RESTClient(), "events", Namespace, fields.Everything())
	if s.events, err = watch.Follow(ctx, events, &eventsv1.Event{}); err != nil {
		return s, err
	}
	leases := cache.NewListWatchFromClient(client.CoordinationV1().RESTClient(), "leases", Namespace, fields.Everything())
	s.leases, err = watch.Follow(ctx, leases, &coordinationv1.Lease{})
	return s, err
}

// wait returns when nothing is followed any more; the context of follow must have ended.
func (s *Slices) wait() {
	if s.endpoints != nil {
		s.endpoints.Wait()
	}
	if s.events != nil {
		s.events.Wait()
	}
	if s.leases != nil {
		s.leases.Wait()
	}
}

// StopWatching ends the watches, for whoever measures: they are load that no user has. From then on
// Slices show what was seen last.
func (p *Pair) StopWatching() {
	p.stopWatching()
	p.wait()
}

// Now returns the Service's EndpointSlices as the watch tells them.
func (s *Slices) Now() []*discoveryv1.EndpointSlice { return s.endpoints.Now() }

// WaitSlices waits until the slices are as told, and returns how long it took.
func (s *Slices) WaitSlices(ctx context.Context, are func([]*discoveryv1.EndpointSlice) bool) (time.Duration, error) {
	return s.WaitSlicesSince(ctx, time.Now(), are)
}

// WaitSlicesSince is WaitSlices for something that was begun at start: it measures until
// the watch event that made the slices as told, however late the wait begins.
func (s *Slices) WaitSlicesSince(ctx context.Context, start time.Time, are func([]*discoveryv1.EndpointSlice) bool) (time.Duration, error) {
	took, err := s.endpoints.Since(ctx, start, are)
	if err != nil {
		return 0, fmt.Errorf("the EndpointSlices are not as expected but: %s: %w", Describe(s.Now()), err)
	}
	return took, nil
}

// Propagation makes a change and returns how long after its beginning the slices were as told.
func (s *Slices) Propagation(
	ctx context.Context,
	change func(context.Context) error,
	are func([]*discoveryv1.EndpointSlice) bool,
) (time.Duration, error) {
	start := time.Now()
	if err := change(ctx); err != nil {
		return 0, err
	}
	return s.WaitSlicesSince(ctx, start, are)
}

// WaitEvent waits for an Event about the Service that is as told, or finds one from before.
func (s *Slices) WaitEvent(ctx context.Context, is func(*eventsv1.Event) bool) (*eventsv1.Event, error) {
	var found *eventsv1.Event
	_, err := s.events.Since(ctx, time.Now(), func(all []*eventsv1.Event) bool {
		for _, e := range all {
			if e.Regarding.Kind == "Service" && e.Regarding.Name == Service && is(e) {
				found = e
				return true
			}
		}
		return false
	})
	if err != nil {
		return nil, fmt.Errorf("no such Event on Service %s: %w", Service, err)
	}
	return found, nil
}

// Leader returns who holds the writers' Lease, as the Lease says; empty: nobody.
func (s *Slices) Leader() string { return holder(s.leases.Now()) }

// WaitLeader waits until the Lease is held by someone else than told.
func (s *Slices) WaitLeader(ctx context.Context, other string) (time.Duration, error) {
	took, err := s.leases.Since(ctx, time.Now(), func(all []*coordinationv1.Lease) bool {
		now := holder(all)
		return now != "" && now != other
	})
	if err != nil {
		return 0, fmt.Errorf("nobody but %q holds the Lease: %w", other, err)
	}
	return took, nil
}

func holder(leases []*coordinationv1.Lease) string {
	for _, lease := range leases {
		if strings.HasPrefix(lease.Name, "slicefeed-") && lease.Spec.HolderIdentity != nil {
			return *lease.Spec.HolderIdentity
		}
	}
	return ""
}

// Condition is what an endpoint's conditions amount to.
type Condition string

// The conditions. Absent is that of an address in no slice.
const (
	Absent   Condition = ""
	Ready    Condition = "ready"
	Draining Condition = "draining" // not ready, serving, terminating
	Out      Condition = "out"      // all three false
	Odd      Condition = "odd"      // anything else, or one address listed twice
)

// Conditions returns what the slices say of each address.
func Conditions(all []*discoveryv1.EndpointSlice) map[netip.Addr]Condition {
	found := map[netip.Addr]Condition{}
	for _, slice := range all {
		for _, endpoint := range slice.Endpoints {
			for _, text := range endpoint.Addresses {
				address, err := netip.ParseAddr(text)
				if err != nil {
					continue
				}
				if _, twice := found[address]; twice {
					found[address] = Odd
					continue
				}
				found[address] = condition(endpoint.Conditions)
			}
		}
	}
	return found
}

func condition(c discoveryv1.EndpointConditions) Condition {
	if c.Ready == nil || c.Serving == nil || c.Terminating == nil {
		return Odd
	}
	switch [3]bool{*c.Ready, *c.Serving, *c.Terminating} {
	case [3]bool{true, true, false}:
		return Ready
	case [3]bool{false, true, true}:
		return Draining
	case [3]bool{false, false, false}:
		return Out
	default:
		return Odd
	}
}

// Are tells slices in which all these addresses have the condition.
func Are(want Condition, addresses ...netip.Addr) func([]*discoveryv1.EndpointSlice) bool {
	return func(all []*discoveryv1.EndpointSlice) bool {
		found := Conditions(all)
		for _, address := range addresses {
			if found[address] != want {
				return false
			}
		}
		return true
	}
}

// AreJust tells slices that have these addresses with the condition, and no others.
func AreJust(want Condition, addresses ...netip.Addr) func([]*discoveryv1.EndpointSlice) bool {
	return func(all []*discoveryv1.EndpointSlice) bool {
		return len(Conditions(all)) == len(addresses) && Are(want, addresses...)(all)
	}
}

// Describe says in a line what the slices say.
func Describe(all []*discoveryv1.EndpointSlice) string {
	found := Conditions(all)
	lines := make([]string, 0, len(found))
	for address, is := range found {
		lines = append(lines, address.String()+" "+string(is))
	}
	slices.Sort(lines)
	if len(lines) == 0 {
		return "no endpoints"
	}
	return strings.Join(lines, ", ")
}
