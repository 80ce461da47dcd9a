// Package planner computes the fewest writes that make existing EndpointSlices list the desired
// endpoints. It is a pure library for endpoints that are not Pods, and imports only k8s.io/api,
// apimachinery's metadata types and the standard library. It guarantees that an endpoint that stays is
// never absent between two writes of a plan. It does not change slices without the managed-by label of
// this installation.
package planner

import (
	"cmp"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LabelSource is the label with the source of a slice's endpoints.
	LabelSource = "slicefeed.dev/source"
	// LabelWriter is the label with the installation that writes the slice: the namespace of its Lease.
	LabelWriter = "slicefeed.dev/writer"
	// LabelServiceImport is the label in which a slice names its ServiceImport (KEP-1645), as LabelServiceName is that
	// for a Service. A slice has one of them: kube-proxy and the cluster's DNS use every slice that names a Service.
	LabelServiceImport = "multicluster.kubernetes.io/service-name"
	// LabelSourceCluster is the label with the cluster whose endpoints a slice of a ServiceImport lists: the source.
	LabelSourceCluster = "multicluster.kubernetes.io/source-cluster"
	// KindServiceImport is the kind of an owner that is a ServiceImport.
	KindServiceImport = "ServiceImport"
	// GroupServiceImport is its API group.
	GroupServiceImport = "multicluster.x-k8s.io"

	// DefaultSource is the source of a slice or an endpoint without one.
	DefaultSource = "default"

	defaultMaxPerSlice = 100  // as in Kubernetes' own controller; larger slices make each write more expensive
	limitPerSlice      = 1000 // the API server's limit
)

// Endpoint is one address and everything that slices list about it. A node name, a target reference, and what
// another writer left in other fields are removed: a remote node name that equals a local one would count as local.
type Endpoint struct {
	Address                     netip.Addr
	Ready, Serving, Terminating bool
	Zone                        string                     // empty: none
	Hostname                    string                     // a DNS label, by which a headless Service names the endpoint; empty: none
	Hints                       *discoveryv1.EndpointHints // which zones or nodes should use it, written as given; nil: none
	Source                      string                     // the slice's source label, empty: DefaultSource; endpoints of two sources share no slice
	PortGroup                   string                     // key of Desired.PortGroups; one that is not in it: the endpoint has Desired.Ports
}

// Equal reports whether two endpoints mean the same.
func (e Endpoint) Equal(other Endpoint) bool {
	hints := other.Hints
	other.Hints = e.Hints
	return e == other && hintsEqual(e.Hints, hints)
}

// Desired is how the slices of one Service should be, or of one ServiceImport.
type Desired struct {
	Namespace string
	Service   string
	// Owner is the Service; without a UID no owner is written. If it is a ServiceImport, the slices are labeled as
	// those of a ServiceImport.
	Owner     metav1.OwnerReference
	ManagedBy string // value of endpointslice.kubernetes.io/managed-by, which owned slices have
	Writer    string // value of slicefeed.dev/writer; empty: unchanged
	FirstName string // name of the first slice, and prefix of the others
	// Labels are copied from the Service. Slices have these labels, the planner's own and no others. Labels
	// that the Service no longer has are removed, as in the in-tree controller.
	Labels   map[string]string
	Headless bool // the Service has no cluster IP: slices get the label service.kubernetes.io/headless

	// Families of the Service, in its order. Slices of other families are deleted. Without any family
	// the plan is empty.
	Families []discoveryv1.AddressType
	Ports    []discoveryv1.EndpointPort
	// PortGroups are the ports of endpoints whose ports are others, as of Pods whose named ports have other numbers.
	// Endpoints with different ports share no slice.
	PortGroups map[string][]discoveryv1.EndpointPort
	Endpoints  []Endpoint // duplicates of an address and addresses of other families are ignored

	MaxPerSlice int // 1 to 1000; 0: 100
}

// Plan is the writes: creates, then updates, then deletes, each in the order given. Updates and deletes
// have the resourceVersion and UID that they were computed from.
type Plan struct {
	Create, Update, Delete []*discoveryv1.EndpointSlice
}

// Empty reports whether there is nothing to write.
func (p Plan) Empty() bool { return p.Writes() == 0 }

// Writes is how many API requests the plan takes.
func (p Plan) Writes() int { return len(p.Create) + len(p.Update) + len(p.Delete) }

// NameLabel returns the label in which slices name the object that they belong to: a Service or a ServiceImport.
func NameLabel(kind string) string {
	if kind == KindServiceImport {
		return LabelServiceImport
	}
	return discoveryv1.LabelServiceName
}

// TargetName returns how people, metrics and the names of slices call a Service or a ServiceImport: shop, and
// shop.serviceimport. No Service has a name with a dot.
func TargetName(kind, name string) string {
	if kind == KindServiceImport {
		return name + ImportSuffix
	}
	return name
}

// ImportSuffix ends the TargetName of a ServiceImport.
const ImportSuffix = ".serviceimport"

// Owns reports whether a slice is owned and for this Service: it has the managed-by label and the
// Service's name. An owned slice with a modified service-name label is recognized by its owner
// reference, or, the first slice only, by its name if no Service owns it. So the label is repaired
// instead of creating a second slice. A slice whose owner is a ServiceImport is never that of a Service of
// the same name, whatever its labels say, and the other way round.
func (d Desired) Owns(slice *discoveryv1.EndpointSlice) bool {
	if slice.Namespace != d.Namespace || slice.Labels[discoveryv1.LabelManagedBy] != d.ManagedBy {
		return false
	}
	owned, ofOtherKind := false, false
	for _, owner := range slice.OwnerReferences {
		if d.Owner.UID != "" && owner.UID == d.Owner.UID {
			return true
		}
		owned = owned || IsTarget(owner)
		ofOtherKind = ofOtherKind || IsTarget(owner) && NameLabel(owner.Kind) != d.nameLabel()
	}
	if slice.Labels[d.nameLabel()] == d.Service {
		return !ofOtherKind
	}
	return slice.Name == d.FirstName && !owned
}

func (d Desired) nameLabel() string { return NameLabel(d.Owner.Kind) }

// CurrentEndpoints returns what the owned slices of this Service list, sorted by address. If an address
// is listed twice, it returns the one that Compute would keep. It reads nil conditions as the API
// defines them, and leaves PortGroup empty. Only d's naming fields matter.
func CurrentEndpoints(d Desired, existing []*discoveryv1.EndpointSlice) []Endpoint {
	return EndpointsOf(d.OwnedSlices(existing)...)
}

// EndpointsOf returns what these slices list, sorted by address. Of an address that is listed twice it returns the first.
func EndpointsOf(all ...*discoveryv1.EndpointSlice) []Endpoint {
	var current []Endpoint
	seen := map[netip.Addr]struct{}{}
	for _, slice := range all {
		for i := range slice.Endpoints {
			addr, ok := firstAddress(&slice.Endpoints[i])
			if _, again := seen[addr]; !ok || again {
				continue
			}
			seen[addr] = struct{}{}
			current = append(current, fromAPI(addr, &slice.Endpoints[i], SourceOf(slice)))
		}
	}
	slices.SortFunc(current, func(a, b Endpoint) int { return a.Address.Compare(b.Address) })
	return current
}

// OwnedSlices returns the owned slices of the Service, FirstName first, then by name, so that a plan does
// not depend on the order of a cache or a map. Slices with a modified service-name label come last:
// consumers do not find them, so an endpoint that is listed twice must stay in another slice. After those come slices
// that are being deleted: consumers use them until the last finalizer is gone, and then their endpoints are, too.
func (d Desired) OwnedSlices(existing []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var owned []*discoveryv1.EndpointSlice
	for _, slice := range existing {
		if d.Owns(slice) {
			owned = append(owned, slice)
		}
	}
	slices.SortFunc(owned, func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Or(
			cmp.Compare(boolToInt(isTerminating(a)), boolToInt(isTerminating(b))),
			cmp.Compare(boolToInt(d.isForOtherService(a)), boolToInt(d.isForOtherService(b))),
			cmp.Compare(boolToInt(a.Name != d.FirstName), boolToInt(b.Name != d.FirstName)),
			cmp.Compare(a.Name, b.Name))
	})
	return owned
}

func isTerminating(slice *discoveryv1.EndpointSlice) bool { return slice.DeletionTimestamp != nil }

// appendEmptied appends the slice without endpoints if it has any.
func appendEmptied(updates []*discoveryv1.EndpointSlice, slice *discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	if len(slice.Endpoints) == 0 {
		return updates
	}
	out := slice.DeepCopy()
	out.ManagedFields, out.Endpoints = nil, nil // see renderSlice
	return append(updates, out)
}

// isForOtherService reports whether the service-name label is not this Service's, so that its consumers
// do not find the slice.
func (d Desired) isForOtherService(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[d.nameLabel()] != d.Service
}

func (d Desired) maxPerSlice() int {
	if d.MaxPerSlice <= 0 {
		return defaultMaxPerSlice
	}
	return min(d.MaxPerSlice, limitPerSlice)
}
