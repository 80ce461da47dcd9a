package applier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// resolveUnsure lists the Service's slices if this term has not done so yet, or if the outcome of a write is unknown. If
// they are not what the caller decided on, it returns a StaleError.
//
// A new leader needs this although its cache is synced: the last leader may have written what the cache does not show
// yet. A plan from an old view may remove the rest of the Service's endpoints, since no
// resourceVersion protects a slice that a plan leaves alone. One listing per Service suffices, but only the slices
// whose outcome is unknown lose what is known of them: half of a plan may have been written.
func (a *Applier) resolveUnsure(ctx context.Context, m *memory, order *Order) error {
	unsure := a.unsureNames(m)
	if m.listed && len(unsure) == 0 {
		return nil
	}
	read, err := a.readSlices(ctx, m, order, unsure...)
	if err != nil {
		return err
	}
	if len(unsure) > 0 {
		return &StaleError{Slice: unsure[0], Err: errors.New("outcome of the last write is unknown")}
	}
	if name := firstDifference(order.Current, read); name != "" {
		return &StaleError{Slice: name, Err: errors.New("written by another leader")}
	}
	return nil
}

// readSlices replaces base by a listing. A slice of another owner may have a name that is needed, and a slice of this
// Service may have lost its label: those are read by name.
func (a *Applier) readSlices(ctx context.Context, m *memory, order *Order, names ...string) ([]*discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	listed, version, err := a.cfg.Store.List(ctx, order.Desired.Namespace, order.Desired.Selector())
	if err != nil {
		return nil, fmt.Errorf("list slices of Service %s: %w", nameOf(order.Service), err)
	}
	expected := map[string]struct{}{}
	for _, name := range names {
		expected[name] = struct{}{}
	}
	for _, slice := range order.Current {
		expected[slice.Name] = struct{}{}
	}
	for _, slice := range listed {
		delete(expected, slice.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		slice, err := a.cfg.Store.Get(ctx, order.Desired.Namespace, name)
		switch {
		case err == nil:
			listed = append(listed, slice)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("read slice %s: %w", name, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m.recordListing(listed, version)
	return listed, nil
}

func (a *Applier) unsureNames(m *memory) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(m.unsure))
}

// firstDifference returns the first name whose slice is not the same object in the same version.
func firstDifference(a, b []*discoveryv1.EndpointSlice) string {
	byName := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range b {
		byName[slice.Name] = slice
	}
	for _, slice := range a {
		other := byName[slice.Name]
		if other == nil || other.UID != slice.UID || other.ResourceVersion != slice.ResourceVersion {
			return slice.Name
		}
		delete(byName, slice.Name)
	}
	if len(byName) > 0 {
		return slices.Min(slices.Collect(maps.Keys(byName)))
	}
	return ""
}

// begin returns the memory of the current term for a Service. Another Service of the same name starts with a new one.
func (a *Applier) begin(service corev1.ObjectReference) *memory {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.memory.service != "" && a.memory.service != service.UID {
		a.memory = newMemory()
	}
	a.memory.service = service.UID
	return a.memory
}

// isCurrent reports whether the term that a memory belongs to goes on.
func (a *Applier) isCurrent(m *memory) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.memory == m
}
