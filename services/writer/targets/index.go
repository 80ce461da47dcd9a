package targets

import (
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	firstNameSuffix = "-slicefeed" // of the first slice of a labeled Service
	// maxNameEnding is what the planner may cut off a first name to make room for its endings: a source,
	// a family and a number.
	maxNameEnding = 93
	maxName       = 253
)

// sliceIndex finds the Services that a slice affects, so that resolving one Service does not read all
// slices of its namespace.
type sliceIndex struct{ namedTarget NamedTarget }

// indexKeys returns the affected Services, by Key and by UID: the one in the slice's label, those that
// own it, and those for which the planner might use its name.
func (c sliceIndex) indexKeys(slice *discoveryv1.EndpointSlice) []string {
	var all []string
	if service := slice.Labels[discoveryv1.LabelServiceName]; service != "" {
		all = append(all, Key{slice.Namespace, service}.String())
	}
	for _, owner := range slice.OwnerReferences {
		if isServiceOwner(owner) {
			all = append(all, uidKey(slice.Namespace, owner.UID))
		}
	}
	// The planner's names are the first name, alone or followed by a dash and more.
	for from := 0; ; {
		at := strings.Index(slice.Name[from:], firstNameSuffix)
		if at < 0 {
			break
		}
		at += from
		if rest := slice.Name[at+len(firstNameSuffix):]; at > 0 && (rest == "" || rest[0] == '-') {
			all = append(all, Key{slice.Namespace, slice.Name[:at]}.String())
		}
		from = at + 1
	}
	if slice.Namespace == c.namedTarget.Namespace && c.namedTarget.FirstName != "" && strings.HasPrefix(slice.Name, c.namedPrefix()) {
		all = append(all, c.namedTarget.key().String())
	}
	return all
}

// namedPrefix is the common prefix of all names that the planner may derive from the first name of the
// named target.
func (c sliceIndex) namedPrefix() string {
	name := c.namedTarget.FirstName
	return strings.TrimRight(name[:min(len(name), maxName-maxNameEnding)], "-.")
}

func isServiceOwner(owner metav1.OwnerReference) bool {
	return owner.Kind == "Service" && owner.APIVersion == "v1"
}

// uidKey is the index key of an owner; no Key contains "#".
func uidKey(namespace string, uid types.UID) string { return namespace + "#" + string(uid) }

func keyOf(object metav1.Object) Key { return Key{object.GetNamespace(), object.GetName()} }
