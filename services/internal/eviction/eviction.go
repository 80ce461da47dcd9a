// Package eviction limits how much is kept for anonymous peers, such as unfinished handshakes. It
// guarantees that a full set evicts the oldest item of the source address that has the most items, so
// that a flood from few addresses displaces only itself. It does not know what the items are, nor how
// they end.
package eviction

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// Set holds items by the source address that they came from.
//
// Evicting the oldest item of all was rejected: whoever opens more than others would displace the
// others, and first of all the most distant peers, whose handshakes take longest. Rejecting the newest
// was rejected too: whoever merely holds items open would lock everyone else out.
type Set[T any] struct {
	limit int
	evict func(T)

	mu      sync.Mutex
	sources map[netip.Addr]*list.List // of *Item[T], oldest first
	size    int
	added   uint64
}

// Item is one value in a set.
type Item[T any] struct {
	set      *Set[T]
	value    T
	source   netip.Addr
	sequence uint64        // numbers items in the order in which they were added
	element  *list.Element // nil: no longer in the set
}

// NewSet returns a set of at most limit items. It calls evict with its lock held, so that evict never
// sees an item that was removed before. evict must neither block nor call the set.
func NewSet[T any](limit int, evict func(T)) *Set[T] {
	return &Set[T]{limit: limit, evict: evict, sources: map[netip.Addr]*list.List{}}
}

// Add adds a value, and evicts another one if the set is full.
func (s *Set[T]) Add(source netip.Addr, value T) *Item[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.added++
	item := &Item[T]{set: s, value: value, source: source, sequence: s.added}
	items := s.sources[source]
	if items == nil {
		items = list.New()
		s.sources[source] = items
	}
	item.element = items.PushBack(item)
	if s.size++; s.size > s.limit {
		evicted := s.pickVictim()
		s.removeItem(evicted)
		s.evict(evicted.value)
	}
	return item
}

// pickVictim returns the oldest item of the largest source; if several are equally large, the oldest
// of all of these. There are a few hundred sources at most, so that the loop takes microseconds.
func (s *Set[T]) pickVictim() *Item[T] {
	var victim *Item[T]
	maxItems := 0
	for _, items := range s.sources {
		oldest := items.Front().Value.(*Item[T])
		if n := items.Len(); n > maxItems || n == maxItems && oldest.sequence < victim.sequence {
			victim, maxItems = oldest, n
		}
	}
	return victim
}

func (s *Set[T]) removeItem(item *Item[T]) {
	items := s.sources[item.source]
	items.Remove(item.element)
	item.element = nil
	s.size--
	if items.Len() == 0 {
		delete(s.sources, item.source)
	}
}

// Remove removes the item. It returns false if the item was evicted before.
func (i *Item[T]) Remove() bool {
	i.set.mu.Lock()
	defer i.set.mu.Unlock()
	if i.element == nil {
		return false
	}
	i.set.removeItem(i)
	return true
}

// Len returns the number of items.
func (s *Set[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// SourceAddr returns the address by which a peer is counted: its IPv4 address, or the /64 network of
// its IPv6 address, because a single machine can use all 2^64 addresses of one. Peers that have neither
// share the zero address.
func SourceAddr(peer net.Addr) netip.Addr {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return SourceNetwork(tcp.AddrPort().Addr())
}

// SourceNetwork is SourceAddr for an address.
func SourceNetwork(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr
}
