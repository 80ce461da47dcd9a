package targets

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// trimService drops fields that are never read. There may be many Services that are no targets: of
// those it keeps only what is needed to recognize them, and their ClusterIPs, which must never become
// endpoints.
func (t *Targets) trimService(obj any) (any, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return obj, nil
	}
	svc.ManagedFields, svc.Status = nil, corev1.ServiceStatus{}
	if t.recordLabel(svc) || t.cfg.isTarget(svc) {
		return svc, nil
	}
	small := &corev1.Service{}
	small.Namespace, small.Name, small.UID, small.ResourceVersion = svc.Namespace, svc.Name, svc.UID, svc.ResourceVersion
	small.DeletionTimestamp = svc.DeletionTimestamp
	if class, labeled := svc.Labels[LabelClass]; labeled {
		small.Labels = map[string]string{LabelClass: class}
	}
	if text, given := svc.Annotations[annotationPrefix+pausedAnnotation]; given {
		small.Annotations = map[string]string{annotationPrefix + pausedAnnotation: text}
	}
	small.Spec.ClusterIP, small.Spec.ClusterIPs = svc.Spec.ClusterIP, svc.Spec.ClusterIPs
	return small, nil
}

// recordLabel records that the Service has the label of this class, before anything reads it from the
// cache: the label may be removed immediately. It reports whether the Service has or had the label, so
// that it may stay managed for a while.
func (t *Targets) recordLabel(svc *corev1.Service) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := keyOf(svc)
	before := t.memories[key]
	if before.uid != svc.UID {
		before = serviceMemory{uid: svc.UID}
	}
	if t.cfg.Class != "" && svc.Labels[LabelClass] == t.cfg.Class {
		before.Labeled, before.UnlabeledSince = true, time.Time{}
		t.memories[key] = before
	}
	return before.Labeled
}

// trimSlice drops fields that are never read from slices that others manage. Of slices of another class
// it keeps whether they list a ready endpoint.
func (t *Targets) trimSlice(obj any) (any, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	if by := slice.Labels[discoveryv1.LabelManagedBy]; by != t.cfg.managedBy() && (by == "" || by != t.cfg.NamedTarget.ManagedBy) {
		endpoints := slice.Endpoints
		slice.Endpoints, slice.Ports, slice.ManagedFields, slice.Annotations = nil, nil, nil, nil
		if at := slices.IndexFunc(endpoints, isReady); at >= 0 && isOtherClass(slice) {
			slice.Endpoints = []discoveryv1.Endpoint{*endpoints[at].DeepCopy()}
		}
	}
	return slice, nil
}
