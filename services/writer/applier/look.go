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

// look reads our slices from the API server, once, before the first write since the Applier was made
// or told to Forget. Another leader may have written what the cache has not seen yet, and a slice
// that the plan leaves alone is protected by no resourceVersion: whoever believes that it still
// lists what it listed may take the rest of the Service away. If one is not as the cache says,
// what the caller decided upon is too old. A leader that has nothing to write reads nothing.
func (a *Applier) look(ctx context.Context, service corev1.ObjectReference, desired planner.Desired, current []*discoveryv1.EndpointSlice) error {
	a.mu.Lock()
	reign, looked := a.reign, a.looked
	a.mu.Unlock()
	if reign == looked {
		return nil
	}
	var stale error
	for _, slice := range current {
		if !desired.Owns(slice) {
			continue
		}
		is, err := a.get(ctx, key{slice.Namespace, slice.Name})
		switch {
		case apierrors.IsNotFound(err):
			is = nil
		case err != nil:
			return fmt.Errorf("read slice %s before the first write: %w", slice.Name, err)
		case is.UID == slice.UID && is.ResourceVersion == slice.ResourceVersion:
			continue
		}
		a.saw(service, slice, is)
		stale = &Stale{Slice: slice.Name, Err: errors.New("it was written by another leader")}
	}
	a.mu.Lock()
	a.looked = reign
	a.mu.Unlock()
	return stale
}

// saw notes that a slice is not as it was taken for; nil: it is not there.
func (a *Applier) saw(service corev1.ObjectReference, was, is *discoveryv1.EndpointSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.record(service.UID, key{was.Namespace, was.Name})
	r.newest, r.gone = is, ""
	if is == nil {
		r.gone, r.last = was.UID, was.ResourceVersion
	}
}

func (a *Applier) get(ctx context.Context, k key) (*discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return a.store.Get(ctx, k.namespace, k.name)
}
