package applier

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
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
	if _, err := fmt.Fprintf(m.out, "would %s EndpointSlice %s/%s\n%s", verb, named.Namespace, named.Name, Diff(was, now)); err != nil {
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

// Diff shows what changes between two slices, either of which may be nil: a line for each
// label, owner, port and endpoint, with - for what goes and + for what comes.
func Diff(was, now *discoveryv1.EndpointSlice) string {
	before, after := lines(was), lines(now)
	var out strings.Builder
	for _, line := range merged(before, after) {
		_, had := slices.BinarySearch(before, line)
		_, has := slices.BinarySearch(after, line)
		switch {
		case had && !has:
			out.WriteString("  - " + line + "\n")
		case has && !had:
			out.WriteString("  + " + line + "\n")
		}
	}
	return out.String()
}

// merged is both sorted lists as one, without doubles.
func merged(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// lines describes a slice, sorted.
func lines(slice *discoveryv1.EndpointSlice) []string {
	if slice == nil {
		return nil
	}
	var out []string
	for name, value := range slice.Labels {
		out = append(out, "label "+name+"="+value)
	}
	for _, owner := range slice.OwnerReferences {
		out = append(out, fmt.Sprintf("owner %s %s %s", owner.Kind, owner.Name, owner.UID))
	}
	for i := range slice.Ports {
		out = append(out, "port "+portLine(&slice.Ports[i]))
	}
	for i := range slice.Endpoints {
		out = append(out, "endpoint "+endpointLine(&slice.Endpoints[i]))
	}
	slices.Sort(out)
	return out
}

func portLine(p *discoveryv1.EndpointPort) string {
	protocol, number := corev1.ProtocolTCP, "any"
	if p.Protocol != nil {
		protocol = *p.Protocol
	}
	if p.Port != nil {
		number = strconv.Itoa(int(*p.Port))
	}
	line := fmt.Sprintf("%s/%s", number, protocol)
	if p.Name != nil && *p.Name != "" {
		line += " " + *p.Name
	}
	if p.AppProtocol != nil && *p.AppProtocol != "" {
		line += " appProtocol=" + *p.AppProtocol
	}
	return line
}

func endpointLine(e *discoveryv1.Endpoint) string {
	flag := func(b *bool, otherwise bool) bool {
		if b == nil {
			return otherwise
		}
		return *b
	}
	line := fmt.Sprintf("%s ready=%t serving=%t terminating=%t", strings.Join(e.Addresses, ","),
		flag(e.Conditions.Ready, true), flag(e.Conditions.Serving, true), flag(e.Conditions.Terminating, false))
	if e.Zone != nil && *e.Zone != "" {
		line += " zone=" + *e.Zone
	}
	if e.NodeName != nil && *e.NodeName != "" {
		line += " node=" + *e.NodeName
	}
	return line
}
