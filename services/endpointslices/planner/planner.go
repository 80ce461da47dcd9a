// Package planner computes the fewest writes that make existing EndpointSlices list the desired
// endpoints. It is a pure library for endpoints of any kind, and imports no client. It guarantees that an endpoint that stays is
// never absent between two writes of a plan. It does not change slices without the managed-by label of
// this installation.
package planner

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

const (
	defaultMaxPerSlice = 100  // as in Kubernetes' own controller; larger slices make each write more expensive
	limitPerSlice      = 1000 // the API server's limit
)

// Endpoint is one address and everything that slices list about it. What another writer left in other fields is removed.
type Endpoint struct {
	Address                     netip.Addr
	FQDN                        string // a DNS name in place of Address, for slices of the type FQDN
	Ready, Serving, Terminating bool
	Zone                        string                     // empty: none
	Hostname                    string                     // a DNS label, by which a headless Service names the endpoint; empty: none
	Hints                       *discoveryv1.EndpointHints // which zones or nodes should use it, written as given; nil: none
	// NodeName is the node that the endpoint runs on, empty: none. The name of a node of another cluster would count as
	// local where a node is called the same.
	NodeName  string
	TargetRef *corev1.ObjectReference // the object that the endpoint is, as a Pod; nil: none
	Group     string                  // empty: Desired.DefaultGroup; endpoints of two groups share no slice
	PortGroup string                  // key of Desired.PortGroups; one that is not in it: the endpoint has Desired.Ports
}

// Equal reports whether two endpoints mean the same.
func (e Endpoint) Equal(other Endpoint) bool {
	hints, target := other.Hints, other.TargetRef
	other.Hints, other.TargetRef = e.Hints, e.TargetRef
	return e == other && hintsEqual(e.Hints, hints) && ptr.Equal(e.TargetRef, target)
}

// Compare orders endpoints by their address or DNS name alone.
func (e Endpoint) Compare(other Endpoint) int {
	return cmp.Or(e.Address.Compare(other.Address), strings.Compare(e.FQDN, other.FQDN))
}

// Family returns the address type of the slices that can list the endpoint.
func (e Endpoint) Family() discoveryv1.AddressType {
	if e.FQDN != "" {
		return discoveryv1.AddressTypeFQDN
	}
	return FamilyOf(e.Address)
}

// Desired is how the slices of one Service should be, or of another object that has slices.
type Desired struct {
	Namespace string
	Service   string // name of the Service, or of what NameLabel is for
	NameLabel string // label with that name; empty: kubernetes.io/service-name
	// Owner is the Service, or what else the slices are deleted with; without a UID no owner is written.
	Owner metav1.OwnerReference
	// OwnerKinds are the kinds of which a slice has Owner as its only owner: another one is an earlier object of the
	// same name, or has the slice for itself. Empty: Owner's kind.
	OwnerKinds []schema.GroupKind
	ManagedBy  string // value of ManagedByLabel, which owned slices have
	// ManagedByLabel is the label by which owned slices are found; empty: endpointslice.kubernetes.io/managed-by.
	ManagedByLabel string
	// InstanceLabels say which installation wrote a slice last, if several share ManagedBy. Withdraw deletes only slices
	// that have all of them.
	InstanceLabels map[string]string
	FirstName      string // name of the first slice, and prefix of the others
	// Labels are copied from the Service. Slices have these labels, those of the other fields, and no others. Labels
	// that the Service no longer has are removed, as in the in-tree controller.
	Labels      map[string]string
	Annotations map[string]string // slices have them; others' annotations stay
	Headless    bool              // the Service has no cluster IP: slices get the label service.kubernetes.io/headless
	// TriggerTime is when what the endpoints are made of changed. Slices whose endpoints or ports change get it, and
	// kube-proxy measures its delay from it; zero: slices have none.
	TriggerTime time.Time

	// GroupLabels are labels with the group of a slice's endpoints, which is read from the first of them. Without any, the
	// groups of endpoints mean nothing.
	GroupLabels  []string
	DefaultGroup string // of endpoints and slices without a group; its slices' names do not contain it

	// Families of the Service, in its order. Slices of other families are deleted. Without any family
	// the plan is empty.
	Families []discoveryv1.AddressType
	Ports    []discoveryv1.EndpointPort
	// PortGroups are the ports of endpoints whose ports are others, as of Pods whose named ports have other numbers.
	// Endpoints with different ports share no slice.
	PortGroups map[string][]discoveryv1.EndpointPort
	Endpoints  []Endpoint // duplicates of an address and addresses of other families are ignored

	MaxPerSlice int // 1 to 1000; 0: 100

	// Mutate changes each slice that is planned to be created or updated, and may change all but its name, its family and
	// its addresses. It must always make the same of the same slice. Nil: nothing.
	Mutate func(*discoveryv1.EndpointSlice)
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

// Owns reports whether a slice is owned and for this Service: it has the managed-by label and the
// Service's name. An owned slice with a modified name label is recognized by its owner reference, or, the first slice
// only, by its name if no object of OwnerKinds owns it. So the label is repaired instead of creating a second slice. A
// slice whose owner is of another of OwnerKinds is never owned, whatever its labels say.
func (d Desired) Owns(slice *discoveryv1.EndpointSlice) bool {
	if slice.Namespace != d.Namespace || slice.Labels[d.managedByLabel()] != d.ManagedBy {
		return false
	}
	owned, ofOtherKind := false, false
	for _, owner := range slice.OwnerReferences {
		if d.Owner.UID != "" && owner.UID == d.Owner.UID {
			return true
		}
		owned = owned || d.isOwnerKind(owner)
		ofOtherKind = ofOtherKind || d.Owner.Kind != "" && d.isOwnerKind(owner) && groupKind(owner) != groupKind(d.Owner)
	}
	if d.Names(slice) {
		return !ofOtherKind
	}
	return slice.Name == d.FirstName && !owned
}

// Selector returns the label by which a slice names the Service, so that consumers find it.
func (d Desired) Selector() map[string]string { return map[string]string{d.nameLabel(): d.Service} }

// Names reports whether a slice names the Service: consumers find the slice.
func (d Desired) Names(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[d.nameLabel()] == d.Service
}

func (d Desired) nameLabel() string { return cmp.Or(d.NameLabel, discoveryv1.LabelServiceName) }

func (d Desired) managedByLabel() string { return cmp.Or(d.ManagedByLabel, discoveryv1.LabelManagedBy) }

// isOwnerKind reports whether an owner is of the OwnerKinds, in any version.
func (d Desired) isOwnerKind(owner metav1.OwnerReference) bool {
	kind := groupKind(owner)
	return d.Owner.Kind != "" && kind == groupKind(d.Owner) || slices.Contains(d.OwnerKinds, kind)
}

func groupKind(owner metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
}

// Group returns the group of a slice's endpoints.
func (d Desired) Group(slice *discoveryv1.EndpointSlice) string {
	if len(d.GroupLabels) == 0 {
		return d.DefaultGroup
	}
	return cmp.Or(slice.Labels[d.GroupLabels[0]], d.DefaultGroup)
}

// CurrentEndpoints returns what the owned slices of this Service list, as EndpointsOf does. If an address is listed
// twice, it returns the one that Compute would keep. Only d's naming fields matter.
func CurrentEndpoints(d Desired, existing []*discoveryv1.EndpointSlice) []Endpoint {
	return d.EndpointsOf(d.OwnedSlices(existing)...)
}

// EndpointsOf returns what these slices list, sorted by address. Of an address that is listed twice it returns the first.
// It reads nil conditions as the API defines them, and leaves PortGroup empty.
func (d Desired) EndpointsOf(all ...*discoveryv1.EndpointSlice) []Endpoint {
	var current []Endpoint
	seen := map[address]struct{}{}
	for _, slice := range all {
		group := d.Group(slice)
		for i := range slice.Endpoints {
			addr, ok := firstAddress(slice, i)
			if _, again := seen[addr]; !ok || again {
				continue
			}
			seen[addr] = struct{}{}
			current = append(current, fromAPI(addr, &slice.Endpoints[i], group))
		}
	}
	slices.SortFunc(current, Endpoint.Compare)
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
			cmp.Compare(boolToInt(!d.Names(a)), boolToInt(!d.Names(b))),
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

func (d Desired) maxPerSlice() int {
	if d.MaxPerSlice <= 0 {
		return defaultMaxPerSlice
	}
	return min(d.MaxPerSlice, limitPerSlice)
}
