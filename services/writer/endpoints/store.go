package endpoints

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// Feed is what clients of the stream read.
type Feed = stream.Feed[*writerv1.Entry, Status, writerv1.WatchEndpointsResponse]

// Store holds the last decision of each target for readers. It is safe for concurrent use. A nil Store
// ignores all calls: dry runs use it.
type Store struct {
	mu         sync.Mutex
	instanceID string
	window     int
	feeds      map[bool]*Feed           // by whether they are grouped; created at the first use, since each is as large as all targets
	targets    map[string]*storedTarget // by group
	held       map[string]int           // addresses that guards hold, by group: no update of a reader visits all targets
	users      map[string]int           // targets that use a source, by its name
	sources    map[string]SourceStatus
	leading    bool
	synced     chan struct{} // closed by MarkSynced
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
func NewStore(instanceID string) *Store { return newStore(instanceID, stream.Window) }

func newStore(instanceID string, window int) *Store {
	return &Store{
		instanceID: instanceID,
		window:     window,
		feeds:      map[bool]*Feed{},
		targets:    map[string]*storedTarget{},
		held:       map[string]int{},
		users:      map[string]int{},
		sources:    map[string]SourceStatus{},
		synced:     make(chan struct{}),
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
	entriesDiffer := !old.published.equal(&updated.published.TargetStatus) || len(s.feeds) > 0 &&
		(!slices.Equal(old.publishedBackends().backends, updated.publishedBackends().backends) ||
			!maps.EqualFunc(old.published.portsAt, updated.published.portsAt, slices.Equal[[]Port]))
	changed := entriesDiffer || updated.held != old.held || t.Leading != s.leading
	s.targets[group], s.leading = updated, t.Leading
	for i := range t.Sources {
		source := NewSourceStatus(&t.Sources[i])
		changed = changed || s.sources[source.Name] != source
		s.sources[source.Name] = source
	}
	s.countUsers(t.Sources, 1)
	switch forgotten := s.countUsers(old.target.Sources, -1); {
	case entriesDiffer:
		s.publish(group)
	case changed || forgotten:
		s.publish()
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

// publish updates the feeds that exist: their status, and the entries of some groups.
func (s *Store) publish(groups ...string) {
	for grouped, f := range s.feeds {
		status := s.status()
		f.Publish(status, status.Synced, func(set *stream.Set[*writerv1.Entry]) {
			for _, group := range groups {
				var entries []*entry
				if p := s.targets[group]; p != nil {
					entries = p.publishedBackends().encodeEntries(ServiceName{p.target.Namespace, p.target.Service}, grouped)
				}
				set.Replace(group, entries)
			}
		})
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
	s.publish(group)
}

// MarkSynced records that every target that existed at the start has been put: from now on the absence
// of a target has a meaning (rule R8).
func (s *Store) MarkSynced() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if synced, _ := s.SyncState(); !synced {
		close(s.synced)
		s.publish()
	}
}

// SyncState reports whether MarkSynced was called, and returns a channel that is closed then.
func (s *Store) SyncState() (synced bool, changed <-chan struct{}) {
	select {
	case <-s.synced:
		return true, s.synced
	default:
		return false, s.synced
	}
}

// Status is the writer's status.
type Status struct {
	Synced  bool // before, readers have only the status
	Leading bool
	Sources []SourceStatus // by name

	held map[string]int // of a store, copied
}

func (s *Store) status() Status {
	synced, _ := s.SyncState()
	status := Status{Synced: synced, Leading: s.leading, held: maps.Clone(s.held)}
	for _, name := range slices.Sorted(maps.Keys(s.sources)) {
		status.Sources = append(status.Sources, s.sources[name])
	}
	return status
}

// countHeld counts the addresses that guards hold of the selected targets.
func (s *Status) countHeld(selection *stream.Selection) (n int) {
	for group, held := range s.held {
		if selection.Has(group) {
			n += held
		}
	}
	return n
}

func sameStatus(a, b Status, selection *stream.Selection) bool {
	return a.Synced == b.Synced && a.Leading == b.Leading && slices.Equal(a.Sources, b.Sources) &&
		(maps.Equal(a.held, b.held) || selection != nil && a.countHeld(selection) == b.countHeld(selection))
}

// ServiceName identifies a Service; without a Service it stands for a namespace.
type ServiceName struct{ Namespace, Service string }

func (n ServiceName) groupKey() string { return n.Namespace + "/" + n.Service }

// SelectServices returns the selection of some Services; of all of them if none is named.
func SelectServices(services []ServiceName) *stream.Selection {
	names := make([]string, len(services))
	for i, n := range services {
		names[i] = n.groupKey()
	}
	return stream.Select(names)
}

// Feed returns what clients of the stream read. If grouped, an entry is a port with all of its addresses; otherwise it
// is one address. A feed stays the same: another one would use the same revisions for other changes.
func (s *Store) Feed(grouped bool) *Feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feeds[grouped] == nil {
		kind := map[bool]string{true: ".g", false: ".e"}[grouped]
		set := stream.NewSet[*writerv1.Entry](s.instanceID+kind, s.window, s.window)
		s.feeds[grouped] = stream.NewFeed(set, stream.FeedConfig[*writerv1.Entry, Status, writerv1.WatchEndpointsResponse]{
			Encode: encodeMessage, Same: sameStatus,
		})
		s.publish(slices.Sorted(maps.Keys(s.targets))...)
	}
	return s.feeds[grouped]
}

// Revision returns the number of changes since a client first subscribed.
func (s *Store) Revision() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.feeds[true]; f != nil {
		n = f.Revision()
	}
	return n
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
		w.Reason = fmt.Sprintf("membership %s: %s", s.Membership.StateName(), s.Membership.Reason)
	case s.Addresses.State != subscriber.Synced:
		w.Reason = fmt.Sprintf("addresses %s: %s", s.Addresses.StateName(), s.Addresses.Reason)
	}
	return w
}
