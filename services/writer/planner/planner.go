// Package planner turns desired endpoints and the EndpointSlices that exist into the
// fewest writes that make them agree. It is pure, and a library for endpoints that are
// not Pods: it imports only k8s.io/api, apimachinery's metadata types and the standard
// library. It promises that an endpoint which is to stay is never absent between two of
// its writes, and refuses to touch a slice that is not ours.
package planner

import (
	"cmp"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LabelSource names the source of a slice's endpoints.
	LabelSource = "slicefeed.dev/source"
	// LabelWriter names the installation that writes the slice: its Lease's namespace.
	LabelWriter = "slicefeed.dev/writer"
	// DefaultSource is the source of a slice, or an endpoint, that names none.
	DefaultSource = "default"

	defaultMaxPerSlice = 100  // as in-tree; larger slices make each write dearer
	limitPerSlice      = 1000 // the API server refuses more
)

// Endpoint is one address as it is to be listed. Nothing else is ever listed of it: a node
// name or hints left over from another writer are removed, because a remote name that
// collides with a local one would count as local.
type Endpoint struct {
	Address                     netip.Addr
	Ready, Serving, Terminating bool
	Zone                        string // empty: none is written
	Source                      string // the slice's source label, empty for "default"; endpoints of two sources share no slice
}

// Desired is how the slices of one Service should be.
type Desired struct {
	Namespace string
	Service   string
	Owner     metav1.OwnerReference // to the Service by UID; a zero UID: none is written
	ManagedBy string                // value of endpointslice.kubernetes.io/managed-by, also what marks a slice as ours
	Writer    string                // value of slicefeed.dev/writer; empty: left as it is
	FirstName string                // name of the first slice; others get it as their prefix
	// Labels are copied from the Service. The slices have these and the planner's own, and no others: what the
	// Service has no more is removed, as by the in-tree controller.
	Labels   map[string]string
	Headless bool // the Service has no cluster IP, which service.kubernetes.io/headless says

	// Families that the Service has, in its order. Slices of other families are deleted;
	// with none at all nothing is planned.
	Families  []discoveryv1.AddressType
	Ports     []discoveryv1.EndpointPort
	Endpoints []Endpoint // an address given twice counts once, the first time; of a foreign family, not at all

	MaxPerSlice int // 1 to 1000; 0: 100
}

// Plan is what to write, in this order: creates, updates, deletes, each in the order given.
// Updates and deletes bear the resourceVersion and UID that they rest upon.
type Plan struct {
	Create, Update, Delete []*discoveryv1.EndpointSlice
}

// Empty reports whether there is nothing to write.
func (p Plan) Empty() bool { return p.Writes() == 0 }

// Writes is how many API requests the plan takes.
func (p Plan) Writes() int { return len(p.Create) + len(p.Update) + len(p.Delete) }

// Owns reports whether a slice is ours for this Service: it bears our managed-by label and
// the Service's name. A slice of ours whose service-name label was altered is known by its
// owner, or, the very first one, by its name as long as no Service owns it; so its label is
// mended instead of a second slice being written.
func (d Desired) Owns(slice *discoveryv1.EndpointSlice) bool {
	if slice.Namespace != d.Namespace || slice.Labels[discoveryv1.LabelManagedBy] != d.ManagedBy {
		return false
	}
	if slice.Labels[discoveryv1.LabelServiceName] == d.Service {
		return true
	}
	owned := false
	for _, owner := range slice.OwnerReferences {
		if d.Owner.UID != "" && owner.UID == d.Owner.UID {
			return true
		}
		owned = owned || isService(owner)
	}
	return slice.Name == d.FirstName && !owned
}

// CurrentEndpoints reads back what our slices of this Service list, sorted by address. Of an address
// that is listed twice the one that Make would keep counts, and nil conditions read as the
// API defines them. Only d's naming fields matter.
func CurrentEndpoints(d Desired, existing []*discoveryv1.EndpointSlice) []Endpoint {
	var current []Endpoint
	seen := map[netip.Addr]struct{}{}
	for _, slice := range d.ownedSlices(existing) {
		for i := range slice.Endpoints {
			addr, ok := firstAddress(&slice.Endpoints[i])
			if _, again := seen[addr]; !ok || again {
				continue
			}
			seen[addr] = struct{}{}
			current = append(current, fromAPI(addr, &slice.Endpoints[i], sourceOf(slice)))
		}
	}
	slices.SortFunc(current, func(a, b Endpoint) int { return a.Address.Compare(b.Address) })
	return current
}

// ownedSlices picks our slices, the first name first, then by name, so that neither the order of
// a cache nor that of a map reaches a plan. Those whose service-name label was altered come
// last: no consumer sees them, so what is listed twice must stay in the others. Slices about
// to vanish hold nothing any more.
func (d Desired) ownedSlices(existing []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var owned []*discoveryv1.EndpointSlice
	for _, slice := range existing {
		if slice.DeletionTimestamp == nil && d.Owns(slice) {
			owned = append(owned, slice)
		}
	}
	slices.SortFunc(owned, func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Or(
			cmp.Compare(boolToInt(d.isForOtherService(a)), boolToInt(d.isForOtherService(b))),
			cmp.Compare(boolToInt(a.Name != d.FirstName), boolToInt(b.Name != d.FirstName)),
			cmp.Compare(a.Name, b.Name))
	})
	return owned
}

// isForOtherService reports whether consumers do not take the slice for the Service's.
func (d Desired) isForOtherService(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelServiceName] != d.Service
}

func (d Desired) maxPerSlice() int {
	if d.MaxPerSlice <= 0 {
		return defaultMaxPerSlice
	}
	return min(d.MaxPerSlice, limitPerSlice)
}
