package targets

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	firstNameSuffix = "-slicefeed" // of the first slice of a labeled Service
	// maxNameEnding is what the planner may cut off a first name to make room for its endings: a source,
	// a family and a number.
	maxNameEnding = 93
	maxName       = 253
)

// affected returns the targets that a slice affects: the ones in the slice's labels, those for which the planner might use
// its name, and, by ownerKey, those that own it. With an index of these, resolving one target does not read all slices of
// its namespace.
func (cfg *Config) affected(slice *discoveryv1.EndpointSlice) (keys []Key, owners []string) {
	add := func(key Key) {
		if key.Name != "" && (!key.Import || cfg.ServiceImports) {
			keys = append(keys, key)
		}
	}
	add(Key{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]})
	add(Key{Namespace: slice.Namespace, Name: slice.Labels[LabelServiceImport], Import: true})
	for _, owner := range slice.OwnerReferences {
		if isTarget(owner) {
			owners = append(owners, ownerKey(slice.Namespace, owner.UID))
		}
	}
	// The planner's names are the first name, alone or followed by a dash and more.
	for from := 0; ; {
		at := strings.Index(slice.Name[from:], firstNameSuffix)
		if at < 0 {
			break
		}
		at += from
		if rest := slice.Name[at+len(firstNameSuffix):]; rest == "" || rest[0] == '-' {
			add(ParseKey(slice.Namespace + "/" + slice.Name[:at]))
		}
		from = at + 1
	}
	if named := cfg.NamedTarget; slice.Namespace == named.Namespace && named.FirstName != "" {
		// All names that the planner may derive from the first name start like this: it cuts off a long one.
		prefix := named.FirstName + "-"
		if room := maxName - maxNameEnding; len(named.FirstName) > room {
			prefix = strings.TrimRight(named.FirstName[:room], "-.")
		}
		if strings.HasPrefix(slice.Name+"-", prefix) {
			add(named.Key)
		}
	}
	return keys, owners
}

// ownerKey is the index key of an owner; no Key contains "#".
func ownerKey(namespace string, uid types.UID) string { return namespace + "#" + string(uid) }

// trimService returns what the cache keeps of a Service: all that is ever read if it is or was a target.
// There may be many others: of those it keeps what is needed to recognize them, and their ClusterIPs,
// which must never become endpoints.
func (cfg *Config) trimService(svc *corev1.Service, wasTarget bool) *corev1.Service {
	svc.ManagedFields, svc.Status = nil, corev1.ServiceStatus{}
	if _, published := svc.Annotations[annotationPrefix+publishAnnotation]; published || wasTarget || cfg.isLabeled(svc) {
		return svc
	}
	small := &corev1.Service{TypeMeta: svc.TypeMeta}
	small.Namespace, small.Name, small.UID, small.ResourceVersion = svc.Namespace, svc.Name, svc.UID, svc.ResourceVersion
	small.DeletionTimestamp = svc.DeletionTimestamp
	if class, labeled := svc.Labels[LabelClass]; labeled {
		small.Labels = map[string]string{LabelClass: class}
	}
	if text, given := svc.Annotations[annotationPrefix+pausedAnnotation]; given {
		small.Annotations = map[string]string{annotationPrefix + pausedAnnotation: text}
	}
	small.Spec.ClusterIP, small.Spec.ClusterIPs = svc.Spec.ClusterIP, svc.Spec.ClusterIPs
	return small
}

// trimSlice drops fields that are never read from slices that others manage: of their endpoints it keeps what is
// published.
func (cfg *Config) trimSlice(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if by := slice.Labels[discoveryv1.LabelManagedBy]; by == cfg.managedBy() || by != "" && by == cfg.NamedTarget.ManagedBy {
		return slice
	}
	slice.ManagedFields, slice.Annotations = nil, nil
	for i, e := range slice.Endpoints {
		slice.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, Zone: e.Zone, Hostname: e.Hostname}
	}
	return slice
}
