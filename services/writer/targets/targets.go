// Package targets watches Services and ServiceImports, and decides which of them this writer manages and how, which it
// rejects, and when it leaves one. It guarantees that a rejection says what is wrong, and that slices are only deleted
// after a person opted out. It writes nothing. Resolve has the rules and is pure; Watcher calls it with what the cluster
// has.
//
// A Service passes through the files in this order: watcher, informers, cache, resolve, optout, annotations, service.
package targets

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/services/writer/sources"
)

// LabelClass on a Service puts it under the management of the installation of that class.
const LabelClass = "slicefeed.dev/class"

// Config is which Services are targets, and what they may use.
type Config struct {
	// Class is the value of LabelClass on this writer's Services; their slices are managed by
	// slicefeed-<Class>.
	Class string
	// Writer is the namespace of this writer, the value of slicefeed.dev/writer.
	Writer string
	// NamedTarget is what the settings fix of a Service, which counts as labeled: its Key and, unless they are zero,
	// ManagedBy, FirstName and FixedPort. It is in a watched namespace. The zero value is none.
	NamedTarget Target
	// Namespaces are watched; a single "*" means all namespaces.
	Namespaces []string
	// ServiceImports with the label are targets too. They are resolved as Services; see serviceOfImport.
	ServiceImports bool
	Defaults       Settings // without Sources: those are the only configured source, if it is the only one
	Sources        []sources.Source
}

// Key identifies a Service, or a ServiceImport, which may have the same name.
type Key struct {
	Namespace, Name string

	Import bool
}

func (k Key) String() string { return k.Namespace + "/" + k.TargetName() }

// TargetName returns how metrics, status pages, the endpoint API and slices name the target: shop, or
// shop.serviceimport.
func (k Key) TargetName() string { return TargetName(k.kind(), k.Name) }

func (k Key) kind() string {
	if k.Import {
		return KindServiceImport
	}
	return "Service"
}

// ParseKey returns the key whose String is text.
func ParseKey(text string) Key {
	namespace, name, _ := strings.Cut(text, "/")
	name, isImport := strings.CutSuffix(name, ImportSuffix)
	return Key{Namespace: namespace, Name: name, Import: isImport}
}

// Compare orders keys by namespace, then by name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.TargetName(), other.TargetName()))
}

// keyOf returns the key of a Service, or of a ServiceImport in that form.
func keyOf(svc *corev1.Service) Key {
	return Key{Namespace: svc.Namespace, Name: svc.Name, Import: isImport(svc)}
}

// Target is a Service or a ServiceImport that this writer can manage. If it is rejected or opted out, only what identifies
// it and its slices is set, Settings.Paused, and the other settings if they are valid.
type Target struct {
	Key

	State State
	// Owner is the Service or ServiceImport, without blockOwnerDeletion, which some clusters forbid. Its UID is empty if it
	// does not exist.
	Owner     metav1.OwnerReference
	ManagedBy string // managed-by label of owned slices
	Writer    string // value of slicefeed.dev/writer
	FirstName string // of the first slice
	// FixedPort is written for the only port of the Service, whatever its targetPort is, and is allowed whatever the
	// allowlists of the sources say; 0: the numeric targetPorts are used.
	FixedPort     uint16
	Families      []discoveryv1.AddressType
	Ports         []discoveryv1.EndpointPort
	ProbePort     uint16   // 0: none, only if probing is off
	ForeignSlices []string // slices of this Service that others manage; consumers use their endpoints too
	// OtherClassSlices are slices of this Service that writers of other classes wrote.
	OtherClassSlices []string
	Settings         Settings
	Configured       []sources.Source // all of the writer's, whose allowlists Allows follows
	// PublishNotReadyAddresses is the field of the Service: consumers send traffic to endpoints that are
	// not ready, too.
	PublishNotReadyAddresses bool
	TrafficDistribution      string            // the field of the Service; empty: none
	Labels                   map[string]string // of the Service, which its slices get
	Headless                 bool              // the Service has no cluster IP
	Type                     string            // of the Service
	ServicePorts             map[string]uint16 // the numbers of the Service's own ports, by name
}

// Reference identifies the target for Events.
func (t *Target) Reference() corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: t.Owner.APIVersion, Kind: t.Owner.Kind, Namespace: t.Namespace, Name: t.Name, UID: t.Owner.UID,
	}
}

// State is what a target is to this writer.
type State int

// States. Whatever the state, nothing is written while Settings.Paused.
const (
	Unknown    State = iota // the caches of its namespace have not synced
	Gone                    // none of this writer's, and none of its slices remain: its reconcile loop ends
	Managed                 // its endpoints are decided on and written
	Rejected                // nothing is written and nothing is deleted
	ProbesOnly              // rejected, but the endpoints that its slices list still follow their probes
	Leaving                 // opted out: its remaining owned slices are deleted
	ReadOnly                // none of this writer's; what its slices list is published
)

// Resolution is what is known of a target at one moment. Its objects are shared with the cache and must
// not be modified.
type Resolution struct {
	Target

	// Rejection is why the target is rejected; nil: it is not.
	Rejection *Rejection
	// Warning is what a person should know of a target that may be managed nevertheless: its annotations are invalid, so
	// the settings accepted last stay in force; or its label no longer names this class, so it is managed until RecheckAt.
	Warning *Rejection
	// Successor is the class that the slices wait for, if its ready endpoints in Slices are why the target is Leaving: the
	// cache may be behind, so they are deleted only once Target.IsReplaced is true of what the API server has.
	Successor string
	// RecheckAt is when to resolve the target again without a change; zero: only on a change.
	RecheckAt time.Time
	// Slices are all slices that the planner must see for this target; of one that is Leaving, those to delete. Of the
	// endpoints in slices of others they have what is published: addresses, conditions and zone.
	Slices []*discoveryv1.EndpointSlice
	// ResourceVersion is a lower bound of how recent Slices are: a slice that was written before and is
	// not among them has been deleted since. Empty: unknown.
	ResourceVersion string
	// ClusterIPs are those of all watched Services, and of the ServiceImports of the target's namespace. They must never
	// become endpoints.
	ClusterIPs map[netip.Addr]struct{}
}

// Active reports whether endpoints are decided on.
func (r *Resolution) Active() bool { return r.State == Managed || r.State == ProbesOnly }

// reject makes the target a rejected one.
func (r *Resolution) reject(why *Rejection) { r.State, r.Rejection = Rejected, why }
