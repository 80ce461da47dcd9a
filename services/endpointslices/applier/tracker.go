package applier

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Tracker knows the newest complete state of a Service's slices: a cache's, unless the API server's answers to writes are
// newer. So nobody decides on a cache that does not show the last write yet. client-go's MutationCache is no alternative:
// it knows no deletions. The zero value knows nothing yet. An Applier has one of its own; for another use, its methods
// must not run at the same time.
type Tracker struct {
	slices  []*discoveryv1.EndpointSlice // sorted by name
	version string                       // lower bound of how recent slices is
	deleted map[types.UID]struct{}       // since the last cache or listing
}

// Observe returns the newest complete state: what a cache has, unless that is older than what is known. version is a
// lower bound of how recent the cache is: the resourceVersion of a list that it contains, or of any newer object.
func (t *Tracker) Observe(cached []*discoveryv1.EndpointSlice, version string) []*discoveryv1.EndpointSlice {
	if !IsNewer(t.version, version) && !t.showsDeleted(cached) {
		t.RecordListing(cached, version)
	}
	return slices.Clone(t.slices)
}

// RecordListing replaces what is known by a listing of the API server.
func (t *Tracker) RecordListing(listed []*discoveryv1.EndpointSlice, version string) {
	t.slices, t.version, t.deleted = sortedByName(listed), version, nil
}

// RecordWrite records the API server's answer to a create or an update.
func (t *Tracker) RecordWrite(answer *discoveryv1.EndpointSlice) {
	at := t.find(answer)
	switch {
	case at < 0:
		t.slices = sortedByName(append(slices.Clone(t.slices), answer))
	case !IsNewer(t.slices[at].ResourceVersion, answer.ResourceVersion): // else a cache has shown a later one since
		t.slices = slices.Clone(t.slices)
		t.slices[at] = answer
	}
	if IsNewer(answer.ResourceVersion, t.version) {
		t.version = answer.ResourceVersion
	}
}

// RecordDelete records that the API server deleted a slice.
func (t *Tracker) RecordDelete(slice *discoveryv1.EndpointSlice) {
	if at := t.find(slice); at >= 0 && t.slices[at].UID == slice.UID {
		t.slices = slices.Delete(slices.Clone(t.slices), at, at+1)
	}
	if t.deleted == nil {
		t.deleted = map[types.UID]struct{}{}
	}
	t.deleted[slice.UID] = struct{}{}
}

func (t *Tracker) find(slice *discoveryv1.EndpointSlice) int {
	return slices.IndexFunc(t.slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == slice.Name })
}

// showsDeleted reports whether the cache shows a slice that was deleted. One that only waits for its finalizers was
// seen after the deletion.
func (t *Tracker) showsDeleted(cached []*discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(cached, func(s *discoveryv1.EndpointSlice) bool {
		_, deleted := t.deleted[s.UID]
		return deleted && s.DeletionTimestamp == nil
	})
}

// IsNewer compares resourceVersions, which are growing numbers. If a is missing or one is malformed, a is not newer.
func IsNewer(a, b string) bool {
	if b == "" {
		return a != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}
