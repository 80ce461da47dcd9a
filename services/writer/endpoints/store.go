package endpoints

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
)

// Store holds the last decision of each target for readers. It is safe for concurrent use. A nil Store
// ignores all calls: dry runs use it.
type Store struct {
	mu         sync.Mutex
	instanceID string
	window     int
	grouped    *deltaset.Set[*Entry]    // an entry for each port; created at the first use, since it is as large as all targets
	individual *deltaset.Set[*Entry]    // an entry for each address; created at the first use
	targets    map[string]*storedTarget // by group
	sources    map[string]SourceStatus
	leading    bool
	synced     bool
	changed    chan struct{}
}

// storedTarget is a target as it was last put.
type storedTarget struct {
	target    Target
	published publishedState // without a managed target's backends, unless complete
	complete  bool
	held      int // changes that guards hold

	portsDiffer bool // see TargetView
}

// SourceStatus is the status of a source's link and of its own synchronization.
type SourceStatus struct {
	Name      string
	Connected bool   // the link is up, and has synced since it is
	Reason    string // why it is not connected, or not synced itself
}

// NewStore returns an empty store. The instance ID identifies this run of the process: random, at most
// 48 bytes.
func NewStore(instanceID string) *Store { return newStore(instanceID, deltaset.Window) }

func newStore(instanceID string, window int) *Store {
	return &Store{
		instanceID: instanceID, window: window,
		targets: map[string]*storedTarget{}, sources: map[string]SourceStatus{}, changed: make(chan struct{}),
	}
}

// publishedBackends returns the published state with all backends.
func (p *storedTarget) publishedBackends() publishedState {
	if !p.complete {
		p.published.backends, p.complete = p.target.desiredBackends(), true
	}
	return p.published
}

// Put stores a target. It is cheap if nothing changed, or as long as no client has subscribed.
func (s *Store) Put(t Target) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	group := ServiceName{t.Namespace, t.Service}.groupKey()
	old := s.targets[group]
	if old == nil {
		old = &storedTarget{}
		s.targets[group] = old
	}
	updated := storedTarget{published: t.publishedState(), complete: t.State != Managed}
	changed := !old.published.equalTarget(updated.published)
	if s.grouped != nil || s.individual != nil {
		updated.target = t
		if changed = !old.publishedBackends().equal(updated.publishedBackends()); changed {
			s.updateSets(&t, old.published, updated.published)
		}
	}
	held := 0
	for _, g := range t.Decision.Guards {
		held += g.Held
	}
	changed = changed || held != old.held || t.Leading != s.leading
	updated.portsDiffer, updated.held = t.portsDiffer(updated.published), held
	t.Slices = nil // published has what they list
	updated.target = t
	*old, s.leading = updated, t.Leading
	for i := range t.Sources {
		source := NewSourceStatus(&t.Sources[i])
		changed = changed || s.sources[source.Name] != source
		s.sources[source.Name] = source
	}
	if changed {
		s.broadcast()
	}
}

// Remove removes a target that no longer exists for this writer.
func (s *Store) Remove(namespace, service string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	group := ServiceName{namespace, service}.groupKey()
	old := s.targets[group]
	if old == nil {
		return
	}
	delete(s.targets, group)
	if s.grouped != nil || s.individual != nil {
		s.updateSets(&old.target, old.publishedBackends(), publishedState{})
	}
	s.broadcast()
}

// MarkSynced records that every target that existed at the start has been put: from now on the absence
// of a target has a meaning (rule R8).
func (s *Store) MarkSynced() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		s.synced = true
		s.broadcast()
	}
}

// SyncState reports whether MarkSynced was called, and returns a channel that is closed at the next
// change.
func (s *Store) SyncState() (synced bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced, s.changed
}

// updateSets updates the delta sets from the old published state of a target to the new one. A state of
// zero means not published.
func (s *Store) updateSets(t *Target, oldState, newState publishedState) {
	key := ServiceName{t.Namespace, t.Service}.groupKey()
	entry := func(kind EntryKind, key string) *Entry {
		return &Entry{Key: key, Namespace: t.Namespace, Service: t.Service, Kind: kind}
	}
	if newState.state == 0 {
		s.forEachSet(func(set *deltaset.Set[*Entry]) { set.Remove(key, key) })
	} else if !oldState.equalTarget(newState) {
		e := entry(KindTarget, key)
		e.State, e.Reason, e.Message, e.Ports = newState.state, newState.reason, newState.message, newState.ports
		e.withFingerprint()
		s.forEachSet(func(set *deltaset.Set[*Entry]) { set.Put(e) })
	}
	mergeSorted(oldState.ports, newState.ports, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) }, func(oldPort, port *Port) {
		var before, after []Backend
		if oldPort != nil {
			before = oldState.backends
		}
		if port != nil {
			after = newState.backends
		}
		portKey := key + "/" + cmp.Or(port, oldPort).Name
		renumbered := oldPort != nil && port != nil && *oldPort != *port
		changed := (oldPort == nil) != (port == nil) || renumbered
		mergeSorted(before, after, func(a, b Backend) int { return a.Address.Compare(b.Address) }, func(oldBackend, newBackend *Backend) {
			if oldBackend != nil && newBackend != nil && *oldBackend == *newBackend && !renumbered {
				return
			}
			changed = true
			switch {
			case s.individual == nil:
			case newBackend == nil:
				s.individual.Remove(key, portKey+"/"+oldBackend.Address.String())
			default:
				e := entry(KindEndpoint, portKey+"/"+newBackend.Address.String())
				e.Port, e.Backends = *port, []Backend{*newBackend}
				s.individual.Put(e.withFingerprint())
			}
		})
		switch {
		case s.grouped == nil:
		case port == nil:
			s.grouped.Remove(key, portKey)
		case changed:
			e := entry(KindGroup, portKey)
			e.Port, e.Backends = *port, after[:min(len(after), MaxBackends)]
			e.Omitted = len(after) - len(e.Backends)
			s.grouped.Put(e.withFingerprint())
		}
	})
}

// forEachSet calls f with each delta set that exists.
func (s *Store) forEachSet(f func(*deltaset.Set[*Entry])) {
	for _, set := range []*deltaset.Set[*Entry]{s.grouped, s.individual} {
		if set != nil {
			f(set)
		}
	}
}

// mergeSorted iterates over two sorted lists and calls f with both items of each key: nil where a list
// has none.
func mergeSorted[T any](a, b []T, order func(T, T) int, f func(a, b *T)) {
	for len(a)+len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && order(a[0], b[0]) < 0:
			f(&a[0], nil)
			a = a[1:]
		case len(a) == 0 || order(a[0], b[0]) > 0:
			f(nil, &b[0])
			b = b[1:]
		default:
			f(&a[0], &b[0])
			a, b = a[1:], b[1:]
		}
	}
}

func (s *Store) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of anything published. Call it before
// Since, so that no change is missed in between.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Status is the writer's status for the entries of a filter.
type Status struct {
	Synced  bool
	Leading bool
	Held    int
	Sources []SourceStatus // by name
}

// EqualStatus reports whether two statuses are equal.
func EqualStatus(a, b Status) bool {
	return a.Synced == b.Synced && a.Leading == b.Leading && a.Held == b.Held && slices.Equal(a.Sources, b.Sources)
}

// Update is what a reader needs to be current. Before the initial sync it has only the status.
type Update struct {
	deltaset.Delta[*Entry]

	Status Status
}

// ServiceName identifies a Service; without a Service it stands for a namespace.
type ServiceName struct{ Namespace, Service string }

func (n ServiceName) groupKey() string { return n.Namespace + "/" + n.Service }

// SelectServices returns the filter for some Services; for all of them if none is named.
func SelectServices(services []ServiceName) deltaset.Filter {
	if len(services) == 0 {
		return nil
	}
	requested := make(map[string]struct{}, len(services))
	for _, n := range services {
		requested[n.groupKey()] = struct{}{}
	}
	return func(group string) bool {
		if _, byName := requested[group]; byName {
			return true
		}
		_, byNamespace := requested[group[:strings.IndexByte(group, '/')+1]]
		return byNamespace
	}
}

// Since returns what brings a reader from a position to the current state; nil: from the beginning. If
// grouped, an entry is a port with all of its addresses; otherwise it is one address.
func (s *Store) Since(from *deltaset.Position, filter deltaset.Filter, grouped bool) Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := Update{Status: s.statusFor(filter)}
	switch {
	case !s.synced:
	case grouped:
		u.Delta = s.setFor(&s.grouped, ".g").Since(from, filter)
	default:
		u.Delta = s.setFor(&s.individual, ".e").Since(from, filter)
	}
	return u
}

// setFor returns a delta set, created at its first use. It is never recreated: a new set would use the
// same revisions for other changes.
func (s *Store) setFor(set **deltaset.Set[*Entry], kind string) *deltaset.Set[*Entry] {
	if *set == nil {
		*set = deltaset.New[*Entry](s.instanceID+kind, s.window)
		for _, group := range slices.Sorted(maps.Keys(s.targets)) {
			p := s.targets[group]
			s.updateSets(&p.target, publishedState{}, p.publishedBackends())
		}
	}
	return *set
}

func (s *Store) statusFor(filter deltaset.Filter) Status {
	status := Status{Synced: s.synced, Leading: s.leading}
	for name, p := range s.targets {
		if filter == nil || filter(name) {
			status.Held += p.held
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.sources)) {
		status.Sources = append(status.Sources, s.sources[name])
	}
	return status
}

// Revision returns the number of changes since a client first subscribed.
func (s *Store) Revision() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grouped != nil {
		n = s.grouped.Revision()
	}
	return n
}

// List returns the summaries of the selected targets, sorted by namespace and name, and the status.
func (s *Store) List(filter deltaset.Filter) ([]Summary, Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Summary
	for group, p := range s.targets {
		if filter == nil || filter(group) {
			all = append(all, p.summarize())
		}
	}
	slices.SortFunc(all, func(a, b Summary) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Service, b.Service))
	})
	return all, s.statusFor(filter)
}

// Explain explains why an address is or is not an endpoint of a Service; false: the Service is not a
// target.
func (s *Store) Explain(of ServiceName, address netip.Addr) (Explanation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.targets[of.groupKey()]
	if p == nil {
		return Explanation{}, false
	}
	return p.explainAddress(address), true
}
