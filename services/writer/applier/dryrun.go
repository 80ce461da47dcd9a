package applier

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Memory writes nothing: it prints what it would write, as a diff, and goes on as if it had.
// What is not written yet is read from below.
func Memory(out io.Writer, below Store) Store {
	return &memory{out: out, below: below, slices: map[key]*discoveryv1.EndpointSlice{}, version: 1 << 62}
}

type memory struct {
	out   io.Writer
	below Store

	mu      sync.Mutex
	slices  map[key]*discoveryv1.EndpointSlice // nil: deleted
	version int64                              // newer than any real one, so that the cache never overrules us
}

func (m *memory) Create(_ context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return m.put(create, nil, slice)
}

func (m *memory) Update(ctx context.Context, slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	was, err := m.Get(ctx, slice.Namespace, slice.Name)
	if err != nil {
		return nil, err
	}
	return m.put(update, was, slice)
}

func (m *memory) Delete(_ context.Context, slice *discoveryv1.EndpointSlice) error {
	_, err := m.put(remove, slice, nil)
	return err
}

func (m *memory) Get(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error) {
	m.mu.Lock()
	slice, known := m.slices[key{namespace, name}]
	m.mu.Unlock()
	switch {
	case slice != nil:
		return slice.DeepCopy(), nil
	case known:
		return nil, apierrors.NewNotFound(discoveryv1.Resource("endpointslices"), name)
	default:
		return m.below.Get(ctx, namespace, name)
	}
}

func (m *memory) put(verb verb, was, now *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	named := now
	if now == nil {
		named = was
	}
	if _, err := fmt.Fprintf(m.out, "would %s EndpointSlice %s/%s\n%s", verb, named.Namespace, named.Name, Lines(Diff(was, now))); err != nil {
		return nil, err
	}
	k := key{named.Namespace, named.Name}
	if now == nil {
		m.slices[k] = nil
		return nil, nil
	}
	answer := now.DeepCopy()
	m.version++
	answer.ResourceVersion = strconv.FormatInt(m.version, 10)
	if answer.UID == "" {
		answer.UID = types.UID("dry-run-" + answer.ResourceVersion)
	}
	m.slices[k] = answer
	return answer.DeepCopy(), nil
}
