package endpoints

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/slicefeed/slicefeed/services/internal/deltaset"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
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
	held       map[string]int           // addresses that guards hold, by group: no update of a reader visits all targets
	users      map[string]int           // targets that use a source, by its name
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
	held      int // addresses that guards hold
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
		instanceID: instanceID,
		window:     window,
		targets:    map[string]*storedTarget{},
		held:       map[string]int{},
		users:      map[string]int{},
		sources:    map[string]SourceStatus{},
		changed:    make(chan struct{}),
	}
}

// publishedBackends returns the published state with all backends.
func (p *storedTarget) publishedBackends() *publishedState {
	if !p.complete {
		p.published.backends, p.complete = p.target.desiredBackends(), true
	}
	return &p.published
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
	}
	updated := &storedTarget{target: t, published: t.publishedState(), complete: t.State != Managed}
	updated.target.Slices = nil // published has what they list
	for i := range t.Decision.Endpoints {
		if t.Decision.Endpoints[i].Held {
			updated.held++
		}
	}
	if delete(s.held, group); updated.held > 0 {
		s.held[group] = updated.held
	}
	changed := !old.published.equal(&updated.published.TargetStatus) || updated.held != old.held || t.Leading != s.leading
	if s.grouped != nil || s.individual != nil {
		if changed = changed || !slices.Equal(old.publishedBackends().backends, updated.publishedBackends().backends) ||
			!maps.EqualFunc(old.published.portsAt, updated.published.portsAt, slices.Equal[[]Port]); changed {
			s.publish(updated)
		}
	}
	s.targets[group], s.leading = updated, t.Leading
	for i := range t.Sources {
		source := NewSourceStatus(&t.Sources[i])
		changed = changed || s.sources[source.Name] != source
		s.sources[source.Name] = source
	}
	s.countUsers(t.Sources, 1)
	if s.countUsers(old.target.Sources, -1) || changed {
		s.broadcast()
	}
}

// countUsers counts more or fewer targets that use these sources. It forgets exported Services that no target uses any
// more, and reports whether there were any. Sources that publish one set stay.
func (s *Store) countUsers(sources []subscriber.Snapshot, more int) (forgotten bool) {
	for i := range sources {
		name := sources[i].FeedName()
		if s.users[name] += more; s.users[name] == 0 && sources[i].Service != "" {
			delete(s.users, name)
			delete(s.sources, name)
			forgotten = true
		}
	}
	return forgotten
}

// publish updates the delta sets that exist.
func (s *Store) publish(p *storedTarget) {
	published, name := p.publishedBackends(), ServiceName{p.target.Namespace, p.target.Service}
	if s.grouped != nil {
		s.grouped.Replace(name.groupKey(), published.entries(name, true))
	}
	if s.individual != nil {
		s.individual.Replace(name.groupKey(), published.entries(name, false))
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
	if s.targets[group] == nil {
		return
	}
	s.countUsers(s.targets[group].target.Sources, -1)
	delete(s.targets, group)
	delete(s.held, group)
	for _, set := range []*deltaset.Set[*Entry]{s.grouped, s.individual} {
		if set != nil {
			set.Replace(group, nil)
		}
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
		u.Delta = s.setFor(&s.grouped, true).Since(from, filter)
	default:
		u.Delta = s.setFor(&s.individual, false).Since(from, filter)
	}
	return u
}

// setFor returns a delta set, created at its first use. It is never recreated: a new set would use the
// same revisions for other changes.
func (s *Store) setFor(set **deltaset.Set[*Entry], grouped bool) *deltaset.Set[*Entry] {
	if *set == nil {
		kind := map[bool]string{true: ".g", false: ".e"}[grouped]
		*set = deltaset.New[*Entry](s.instanceID+kind, s.window, s.window)
		for _, group := range slices.Sorted(maps.Keys(s.targets)) {
			s.publish(s.targets[group])
		}
	}
	return *set
}

func (s *Store) statusFor(filter deltaset.Filter) Status {
	status := Status{Synced: s.synced, Leading: s.leading}
	for name, n := range s.held {
		if filter == nil || filter(name) {
			status.Held += n
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

// selectTargets returns the selected targets, sorted by namespace and name.
func (s *Store) selectTargets(filter deltaset.Filter) []*storedTarget {
	var all []*storedTarget
	for group, p := range s.targets {
		if filter == nil || filter(group) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *storedTarget) int {
		return cmp.Or(cmp.Compare(a.target.Namespace, b.target.Namespace), cmp.Compare(a.target.Service, b.target.Service))
	})
	return all
}

// List returns the summaries of the selected targets, sorted by namespace and name, and the status.
func (s *Store) List(filter deltaset.Filter) (all []Summary, status Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.selectTargets(filter) {
		all = append(all, p.summarize())
	}
	return all, s.statusFor(filter)
}

// NewSourceStatus describes a source's link and what the source reports about itself. Whether it is
// trusted is up to the guards.
func NewSourceStatus(s *subscriber.Snapshot) SourceStatus {
	w := SourceStatus{Name: s.FeedName(), Connected: s.Connected && s.SyncedInStream}
	switch {
	case s.Denial != "", !s.EverSynced:
		w.Reason = s.NotSyncedReason()
	case !s.Connected:
		w.Reason = "link down"
	case !s.SyncedInStream:
		w.Reason = "link up, resyncing"
	case s.Membership.State != subscriber.Synced:
		w.Reason = fmt.Sprintf("membership %s: %s", s.Membership.State, s.Membership.Reason)
	case s.Addresses.State != subscriber.Synced:
		w.Reason = fmt.Sprintf("addresses %s: %s", s.Addresses.State, s.Addresses.Reason)
	}
	return w
}
