package plan

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/services/writer/applier"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// NewStore returns the store of a dry run. It prints each write as a diff instead of sending it, and behaves as if
// it had been sent. Slices that it has not written are read from the cluster.
func NewStore(out io.Writer, cluster applier.Store) applier.Store {
	return &store{out: out, cluster: cluster, slices: map[types.NamespacedName]*discoveryv1.EndpointSlice{}, version: 1 << 62}
}

type store struct {
	out     io.Writer
	cluster applier.Store

	mu      sync.Mutex
	slices  map[types.NamespacedName]*discoveryv1.EndpointSlice // nil: deleted
	version int64                                               // above any real one: the cache is never newer
}

func (s *store) Create(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return s.printWrite("create", nil, slice)
}

func (s *store) Update(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	old, err := s.Get(ctx, slice.Namespace, slice.Name)
	if err != nil {
		return nil, err
	}
	return s.printWrite("update", old, slice)
}

func (s *store) Delete(_ context.Context, slice *discoveryv1.EndpointSlice) error {
	_, err := s.printWrite("delete", slice, nil)
	return err
}

func (s *store) Get(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error) {
	s.mu.Lock()
	slice, written := s.slices[types.NamespacedName{Namespace: namespace, Name: name}]
	s.mu.Unlock()
	switch {
	case slice != nil:
		return slice.DeepCopy(), nil
	case written:
		return nil, apierrors.NewNotFound(discoveryv1.Resource("endpointslices"), name)
	default:
		return s.cluster.Get(ctx, namespace, name)
	}
}

// List returns the slices of the cluster with what the dry run has written.
func (s *store) List(ctx context.Context, service corev1.ObjectReference) ([]*discoveryv1.EndpointSlice, string, error) {
	listed, version, err := s.cluster.List(ctx, service)
	if err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.slices) > 0 {
		version = strconv.FormatInt(s.version, 10)
	}
	var all []*discoveryv1.EndpointSlice
	for _, slice := range listed {
		if _, written := s.slices[types.NamespacedName{Namespace: service.Namespace, Name: slice.Name}]; !written {
			all = append(all, slice)
		}
	}
	for _, slice := range s.slices {
		if slice != nil && slice.Namespace == service.Namespace && slice.Labels[planner.NameLabel(service.Kind)] == service.Name {
			all = append(all, slice.DeepCopy())
		}
	}
	return all, version, nil
}

func (s *store) printWrite(verb string, old, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := slice
	if slice == nil {
		named = old
	}
	key := types.NamespacedName{Namespace: named.Namespace, Name: named.Name}
	changes := history.FormatChanges(history.CompareSlices(old, slice, nil))
	if _, err := fmt.Fprintf(s.out, "would %s EndpointSlice %s\n%s", verb, key, changes); err != nil {
		return nil, err
	}
	if slice == nil {
		s.slices[key] = nil
		return nil, nil
	}
	written := slice.DeepCopy()
	s.version++
	written.ResourceVersion = strconv.FormatInt(s.version, 10)
	if written.UID == "" {
		written.UID = types.UID("dry-run-" + written.ResourceVersion)
	}
	s.slices[key] = written
	return written.DeepCopy(), nil
}
