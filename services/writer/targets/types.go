package targets

import (
	"cmp"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/prober"
)

// LabelClass on a Service puts it under the management of the installation of that class.
const LabelClass = "slicefeed.dev/class"

// Reasons of refusals and mistakes, as Events have them.
const (
	ReasonServiceNotFound     = "ServiceNotFound"
	ReasonServiceTerminating  = "ServiceTerminating"
	ReasonServiceHasSelector  = "ServiceHasSelector"
	ReasonExternalName        = "ExternalName"
	ReasonLocalTrafficPolicy  = "LocalTrafficPolicy"
	ReasonTooManyPorts        = "TooManyPorts"
	ReasonNamedTargetPort     = "NamedTargetPort"
	ReasonInvalidTargetPort   = "InvalidTargetPort"
	ReasonAmbiguousTargetPort = "TargetPortAmbiguous"
	ReasonNoProbePort         = "NoProbePort"
	ReasonLegacyEndpoints     = "LegacyEndpoints"
	ReasonOwnedByOtherWriter  = "OtherWriter"
	ReasonOrphanedSlices      = "SlicesLeftBehind"
	ReasonInvalidAnnotation   = "InvalidAnnotation"
	ReasonSourceRequired      = "SourceNotGiven"
	ReasonUnknownSource       = "UnknownSource"
	ReasonNamespaceNotAllowed = "NamespaceOutsideFence"
	ReasonPortNotAllowed      = "PortOutsideFence"
	ReasonLabelRemoved        = "LabelRemoved"
	ReasonClassChanged        = "ClassChanged"
)

// Key names a Service.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Name, other.Name))
}

// Source is what our settings say of one source.
type Source struct {
	Name       string
	Namespaces []string               // in which Services may point to it; empty: all that are watched
	AllowsPort func(port uint16) bool // ports that may be written and probed; nil: all
}

// Settings are what a Service's annotations may change.
type Settings struct {
	Sources      []string        // names, sorted
	NodeSelector labels.Selector // which members; nil: all
	Probe        prober.Spec
	ProbePort    uint16 // 0: the first TCP port written
	MaxStaleness time.Duration
	ShrinkWindow time.Duration
	// EmptyThreshold is how many observations make an empty source believed.
	EmptyThreshold int
	ListUnready    bool      // endpoints that are out are listed
	Paused         bool      // no write of any kind
	Resync         time.Time // when a person asked for a resync; zero: never
}

// NamedTarget is the one target given by name; the zero value is none.
type NamedTarget struct {
	Namespace, Service string
	ManagedBy          string // marks its slices as ours; empty: as those of labelled Services
	FirstName          string // of its first slice; empty: as of labelled Services
	// Port is written for the Service's only port, whatever its targetPort says, and is
	// allowed whatever the sources' fences say; 0: the numeric targetPorts are.
	Port uint16
}

func (n NamedTarget) key() Key { return Key{n.Namespace, n.Service} }

// Target is a Service that can be served. Of one that is refused or being left, only what
// names it and its slices is sure to be set, and the settings if they could be read.
type Target struct {
	Key

	UID           types.UID
	Owner         metav1.OwnerReference // to the Service, without blockOwnerDeletion: some clusters forbid it
	ManagedBy     string                // marks slices as ours
	Writer        string                // value of slicefeed.dev/writer
	FirstName     string                // of the first slice
	Families      []discoveryv1.AddressType
	Ports         []discoveryv1.EndpointPort
	ProbePort     uint16   // 0: none, which only happens while probing is off
	ForeignSlices []string // slices of this Service that others manage; consumers add them to ours
	// OtherClassSlices are slices of this Service that writers of other classes left or write now.
	OtherClassSlices []string
	Settings         Settings
	// PublishNotReadyAddresses: the Service asks consumers to send to endpoints that are not ready too.
	PublishNotReadyAddresses bool
	// TrafficDistribution is the Service's own; empty: none.
	TrafficDistribution string
	// Labels are those of the Service that its slices get too.
	Labels   map[string]string
	Headless bool // the Service has no cluster IP
}

// Desired is the target in the planner's words, but for its endpoints.
func (t Target) Desired() planner.Desired {
	return planner.Desired{
		Namespace: t.Namespace, Service: t.Name, Owner: t.Owner,
		ManagedBy: t.ManagedBy, Writer: t.Writer, FirstName: t.FirstName,
		Families: t.Families, Ports: t.Ports, Labels: t.Labels, Headless: t.Headless,
	}
}

// Rejection is why a Service is not served. Nothing is written while it lasts, and nothing
// is deleted either: what the slices say stays until someone decides.
type Rejection struct {
	Reason  string // CamelCase, as an Event's reason
	Message string // at most an Event's note: what was seen and what to do
}

// Error makes a Refusal usable as one.
func (r *Rejection) Error() string { return r.Message }

// Resolution is what is known of a target at one moment. Its objects are shared with the cache
// and must not be changed.
type Resolution struct {
	// Synced is whether the caches of its namespace were filled once; before, nothing else
	// means anything.
	Synced bool
	// Relevant is whether the Service has anything to do with us: it is to be served, or slices
	// of ours are left of it. When it no longer is, its control ends.
	Relevant bool
	// Leaving: the Service is there and was opted out. Slices are those of ours that are left
	// of it, all to be deleted, unless Paused.
	OptedOut bool
	// Paused: someone acts by hand, so nothing at all is written. It is known whatever else
	// could not be read.
	Paused bool
	// Target is served unless Refusal says why not.
	Target    Target
	Rejection *Rejection
	// ProbesOnly: the Service is rejected, but what its slices list goes on following its probes,
	// for which the Target has the settings and the port. Nothing else is written.
	ProbesOnly bool
	// AnnotationError is of annotations that cannot be used; the target keeps the settings accepted last.
	AnnotationError *Rejection
	// Departing: the label does not name this class any more. The Service is managed as before
	// until Wake, or rejected with the same notice if nothing says how it was managed.
	PendingOptOut *Rejection
	// RecheckAt is when to look again though nothing changes; zero: only on a change.
	RecheckAt time.Time
	// ServiceRef names the Service for Events; its UID is empty if there is none.
	ServiceRef corev1.ObjectReference
	// Slices are all that the planner has to see for this target; those that others manage
	// come without endpoints.
	Slices []*discoveryv1.EndpointSlice
	// ResourceVersion is how new Slices are at least: a slice written before and not among
	// them was deleted since. Empty: not known.
	ResourceVersion string
	// ClusterIPs are those of all watched Services, never to be written as an endpoint.
	ClusterIPs map[netip.Addr]struct{}
}
