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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/slicefeed/slicefeed/lab/pair/audit"
	"github.com/slicefeed/slicefeed/lab/pair/watch"
)

// Slices is what can be seen of our work in the consuming cluster: all EndpointSlices and Events, and the writers' Leases.
type Slices struct {
	endpoints *watch.Set[*discoveryv1.EndpointSlice]
	events    *watch.Set[*eventsv1.Event]
	leases    *watch.Set[*coordinationv1.Lease]
	audit     audit.Log
}

func follow(ctx context.Context, client *kubernetes.Clientset, log audit.Log) (*Slices, error) {
	s := &Slices{audit: log}
	var err error
	endpoints := cache.NewListWatchFromClient(client.DiscoveryV1().RESTClient(), "endpointslices", metav1.NamespaceAll, fields.Everything())
	if s.endpoints, err = watch.Follow(ctx, endpoints, &discoveryv1.EndpointSlice{}); err != nil {
		return s, err
	}
	events := cache.NewListWatchFromClient(client.EventsV1().RESTClient(), "events", metav1.NamespaceAll, fields.Everything())
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

// WatchAgain ends the watches and begins others, which begin with a list: like any watch, they do not survive a restore of
// etcd.
func (p *Pair) WatchAgain(ctx context.Context) error {
	p.StopWatching()
	return p.watch(ctx)
}

// own is the Service that every pair has.
var own = types.NamespacedName{Namespace: Namespace, Name: Service}

// Now returns the EndpointSlices of the pair's own Service, as the watch tells them.
func (s *Slices) Now() []*discoveryv1.EndpointSlice { return s.Of(own) }

// WaitSlices waits until the slices are as told, and returns how long it took.
func (s *Slices) WaitSlices(ctx context.Context, are func([]*discoveryv1.EndpointSlice) bool) (time.Duration, error) {
	return s.WaitSlicesSince(ctx, time.Now(), are)
}

// WaitSlicesSince is WaitSlices for something that was begun at start: it measures until
// the watch event that made the slices as told, however late the wait begins.
func (s *Slices) WaitSlicesSince(ctx context.Context, start time.Time, are func([]*discoveryv1.EndpointSlice) bool) (time.Duration, error) {
	return s.WaitOf(ctx, start, own, are)
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

// Of returns a Service's EndpointSlices.
func (s *Slices) Of(service types.NamespacedName) []*discoveryv1.EndpointSlice {
	return of(service, s.endpoints.Now())
}

func of(service types.NamespacedName, all []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var its []*discoveryv1.EndpointSlice
	for _, one := range all {
		if one.Namespace == service.Namespace && one.Labels[discoveryv1.LabelServiceName] == service.Name {
			its = append(its, one)
		}
	}
	return its
}

// WaitOf waits until a Service's slices are as told, and returns how long after start
// they first were.
func (s *Slices) WaitOf(
	ctx context.Context,
	start time.Time,
	service types.NamespacedName,
	are func([]*discoveryv1.EndpointSlice) bool,
) (time.Duration, error) {
	took, err := s.endpoints.Since(ctx, start, func(all []*discoveryv1.EndpointSlice) bool { return are(of(service, all)) })
	if err != nil {
		return 0, fmt.Errorf("the EndpointSlices of %s are not as expected but: %s: %w", service, Describe(s.Of(service)), err)
	}
	return took, nil
}

// Saw reports whether a Service's slices were as told at any time since start.
func (s *Slices) Saw(start time.Time, service types.NamespacedName, are func([]*discoveryv1.EndpointSlice) bool) bool {
	over, end := context.WithCancel(context.Background())
	end()
	_, err := s.WaitOf(over, start, service, are)
	return err == nil
}

// WaitEach waits until the slices of each of these Services are as told, all at once, and
// returns how long after start they first were.
func (s *Slices) WaitEach(
	ctx context.Context,
	start time.Time,
	services []types.NamespacedName,
	are func([]*discoveryv1.EndpointSlice) bool,
) (time.Duration, error) {
	missing := 0
	took, err := s.endpoints.Since(ctx, start, func(all []*discoveryv1.EndpointSlice) bool {
		by := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
		for _, one := range all {
			service := types.NamespacedName{Namespace: one.Namespace, Name: one.Labels[discoveryv1.LabelServiceName]}
			by[service] = append(by[service], one)
		}
		missing = 0
		for _, service := range services {
			if !are(by[service]) {
				missing++
			}
		}
		return missing == 0
	})
	if err != nil {
		return 0, fmt.Errorf("the EndpointSlices of %d of %d Services are not as expected: %w", missing, len(services), err)
	}
	return took, nil
}

// WaitEventOn waits for an Event about an object that is as told, or finds one from before.
func (s *Slices) WaitEventOn(ctx context.Context, about types.UID, is func(*eventsv1.Event) bool) (*eventsv1.Event, error) {
	var found *eventsv1.Event
	_, err := s.events.Since(ctx, time.Now(), func(all []*eventsv1.Event) bool {
		for _, e := range all {
			if e.Regarding.UID == about && is(e) {
				found = e
				return true
			}
		}
		return false
	})
	return found, err
}

// Events returns all that has been told about an object.
func (s *Slices) Events(about types.UID) []*eventsv1.Event {
	var its []*eventsv1.Event
	for _, e := range s.events.Now() {
		if e.Regarding.UID == about {
			its = append(its, e)
		}
	}
	return its
}

// WaitEvent waits for an Event about the Service that is as told, or finds one from before.
func (s *Slices) WaitEvent(ctx context.Context, is func(*eventsv1.Event) bool) (*eventsv1.Event, error) {
	var found *eventsv1.Event
	_, err := s.events.Since(ctx, time.Now(), func(all []*eventsv1.Event) bool {
		for _, e := range all {
			if e.Regarding.Kind == "Service" && e.Regarding.Namespace == Namespace && e.Regarding.Name == Service && is(e) {
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
