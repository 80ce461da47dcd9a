package link

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// EvictionSet limits what is kept for anonymous peers, such as unfinished handshakes. A full set evicts the oldest item
// of the source address that has the most, so that a flood from few addresses displaces only itself.
//
// Evicting the oldest item of all was rejected: a source that opens more than others would displace the
// others, and first of all the most distant peers, whose handshakes take longest. Rejecting the newest
// was rejected too: a source that merely holds items open would lock all others out.
type EvictionSet[T comparable] struct {
	limit int
	evict func(T)

	mu     sync.Mutex
	items  []evictable[T]     // oldest first
	counts map[netip.Addr]int // by source
}

type evictable[T comparable] struct {
	source netip.Addr
	value  T
}

// NewEvictionSet returns a set of at most limit items. It calls evict with its lock held, so that evict never
// sees an item that was removed before. evict must neither block nor call the set.
func NewEvictionSet[T comparable](limit int, evict func(T)) *EvictionSet[T] {
	return &EvictionSet[T]{limit: limit, evict: evict, counts: map[netip.Addr]int{}}
}

// Add adds an item of the peer with this address, and evicts another one if the set is full.
func (s *EvictionSet[T]) Add(peer string, value T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	source := sourceOf(peer)
	s.items = append(s.items, evictable[T]{source, value})
	s.counts[source]++
	if len(s.items) <= s.limit {
		return
	}
	most := slices.Max(slices.Collect(maps.Values(s.counts)))
	victim := slices.IndexFunc(s.items, func(i evictable[T]) bool { return s.counts[i.source] == most })
	evicted := s.items[victim].value
	s.removeItem(victim)
	s.evict(evicted)
}

// Remove removes an item. It returns false if it was evicted before.
func (s *EvictionSet[T]) Remove(value T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.items, func(i evictable[T]) bool { return i.value == value })
	if at < 0 {
		return false
	}
	s.removeItem(at)
	return true
}

func (s *EvictionSet[T]) removeItem(at int) {
	source := s.items[at].source
	if s.counts[source]--; s.counts[source] == 0 {
		delete(s.counts, source)
	}
	s.items = slices.Delete(s.items, at, at+1)
}

// Len returns the number of items.
func (s *EvictionSet[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items)
}

// sourceOf returns the address by which a peer is counted: its IPv4 address, or the /64 network of
// its IPv6 address, because a single machine can use all 2^64 addresses of one. Peers that have neither
// share the zero address.
func sourceOf(peer string) netip.Addr {
	at, _ := netip.ParseAddrPort(peer)
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr
}
