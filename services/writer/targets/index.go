package targets

import (
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	firstNameSuffix = "-slicefeed" // of the first slice of a labelled Service
	// maxNameEnding is what the planner may take from a first name to have room for its endings:
	// a source, a family and a number.
	maxNameEnding = 93
	maxName       = 253
)

// sliceIndex says which Services a slice matters to, so that to look at one Service is not to
// look at the whole namespace.
type sliceIndex struct{ namedTarget NamedTarget }

// indexKeys lists the Services, by Key and by UID: the one that the slice says it belongs to, those
// that own it, and those whose planner might want its name.
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
	// The planner's names are the first one, alone or with a dash and more behind it.
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

// namedPrefix is what all names begin with that the planner may make of the named target's first one.
func (c sliceIndex) namedPrefix() string {
	name := c.namedTarget.FirstName
	return strings.TrimRight(name[:min(len(name), maxName-maxNameEnding)], "-.")
}

// uidKey is how an owner is listed among Keys: no name contains the sign.
func uidKey(namespace string, uid types.UID) string { return namespace + "#" + string(uid) }

func keyOf(object metav1.Object) Key { return Key{object.GetNamespace(), object.GetName()} }
