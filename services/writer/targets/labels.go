package targets

import (
	"cmp"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
)

// FieldManager identifies the writer in managedFields.
const FieldManager = "slicefeed"

const (
	// LabelSource is the label with the source of a slice's endpoints.
	LabelSource = "slicefeed.dev/source"
	// LabelWriter is the label with the installation that writes the slice: the namespace of its Lease.
	LabelWriter = "slicefeed.dev/writer"
	// LabelServiceImport is the label in which a slice names its ServiceImport (KEP-1645), as LabelServiceName is that
	// for a Service. A slice has one of them: kube-proxy and the cluster's DNS use every slice that names a Service.
	LabelServiceImport = "multicluster.kubernetes.io/service-name"
	// labelSourceCluster is the label with the cluster whose endpoints a slice of a ServiceImport lists: the source.
	labelSourceCluster = "multicluster.kubernetes.io/source-cluster"

	// KindServiceImport is the kind of an owner that is a ServiceImport.
	KindServiceImport = "ServiceImport"
	// GroupServiceImport is its API group.
	GroupServiceImport = "multicluster.x-k8s.io"

	// DefaultSource is the source of a slice that names none.
	DefaultSource = "default"

	// ImportSuffix ends the TargetName of a ServiceImport.
	ImportSuffix = ".serviceimport"
)

// TargetName returns how people, metrics and the names of slices call a Service or a ServiceImport: shop, and
// shop.serviceimport. No Service has a name with a dot.
func TargetName(kind, name string) string {
	if kind == KindServiceImport {
		return name + ImportSuffix
	}
	return name
}

// NameLabel returns the label in which slices name the object that they belong to: a Service or a ServiceImport.
func NameLabel(kind string) string {
	if kind == KindServiceImport {
		return LabelServiceImport
	}
	return discoveryv1.LabelServiceName
}

// OwnerKinds are the kinds of objects that have slices of their own.
var OwnerKinds = []schema.GroupKind{{Kind: "Service"}, {Group: GroupServiceImport, Kind: KindServiceImport}}

// Desired converts the target to the planner's input, without endpoints and their port groups.
func (t *Target) Desired() planner.Desired {
	d := planner.Desired{
		Namespace: t.Namespace, Service: t.Name, NameLabel: NameLabel(t.kind()), FirstName: t.FirstName,
		ManagedBy: t.ManagedBy, InstanceLabels: map[string]string{LabelWriter: t.Writer},
		Owner: t.Owner, OwnerKinds: OwnerKinds,
		GroupLabels: []string{LabelSource}, DefaultGroup: DefaultSource,
		Families: t.Families, Ports: t.Ports, Labels: t.Labels, Headless: t.Headless,
	}
	if t.Import {
		d.GroupLabels = append(d.GroupLabels, labelSourceCluster)
	}
	return d
}

// isTarget reports whether an owner is a Service or a ServiceImport, of any version.
func isTarget(owner metav1.OwnerReference) bool {
	return slices.Contains(OwnerKinds, schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind())
}

// SourceOf returns the source of a slice's endpoints.
func SourceOf(slice *discoveryv1.EndpointSlice) string {
	return cmp.Or(slice.Labels[LabelSource], DefaultSource)
}
