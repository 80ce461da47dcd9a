package applier

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// look reads from the API server what of our slices was neither read nor written since the Applier was made or
// told to Forget, whether there is anything to write or not: once each. Another leader may have written
// what the cache has not seen yet. Whoever believes that a slice still lists what it listed may take the
// rest of the Service away, since what a plan leaves alone is protected by no resourceVersion; and whoever
// takes for its own word what an old cache shows, takes the other one's for an edit when the cache
// catches up. If a slice is not as the cache says, what the caller decided upon is too old.
func (a *Applier) look(ctx context.Context, service corev1.ObjectReference, desired planner.Desired, current []*discoveryv1.EndpointSlice) error {
	var stale error
	for _, slice := range current {
		k := key{slice.Namespace, slice.Name}
		if !desired.Owns(slice) || a.knows(k) {
			continue
		}
		is, err := a.get(ctx, k)
		switch {
		case apierrors.IsNotFound(err):
			is = nil
		case err != nil:
			return fmt.Errorf("verify slice %s: %w", slice.Name, err)
		}
		if a.saw(service, slice, is) {
			stale = &Stale{Slice: slice.Name, Err: errors.New("written by another leader")}
		}
	}
	return stale
}

// knows reports whether the slice was read or written in this reign.
func (a *Applier) knows(k key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.records[k]
	return r != nil && r.known == a.reign
}

// saw notes what a slice is, nil: it is not there, and reports whether it is not what it was taken for.
func (a *Applier) saw(service corev1.ObjectReference, was, is *discoveryv1.EndpointSlice) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.record(service.UID, key{was.Namespace, was.Name})
	r.known = a.begun
	if is != nil && is.UID == was.UID && is.ResourceVersion == was.ResourceVersion {
		return false
	}
	r.newest, r.gone = is, ""
	if is == nil {
		r.gone, r.last = was.UID, was.ResourceVersion
	}
	return true
}

func (a *Applier) get(ctx context.Context, k key) (*discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return a.store.Get(ctx, k.namespace, k.name)
}
