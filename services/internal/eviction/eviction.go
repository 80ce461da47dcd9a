// Package eviction bounds how many things of anonymous peers are kept at a time. It guarantees that
// a full set gives up the oldest thing of the source address that has the most of them, so that a
// flood from few addresses displaces only itself. It does not know what is kept, nor how that ends.
package eviction

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// Set keeps things by the address that they came from.
//
// Evicting the oldest thing of all was rejected: whoever opens more than others then displaces the
// others, and those that are farthest away first, since theirs take longest. Refusing the newest was
// rejected too: whoever merely holds things locks everyone else out.
type Set[T any] struct {
	limit int
	evict func(T)

	mu      sync.Mutex
	sources map[netip.Addr]*list.List // of *Kept[T], the oldest first
	size    int
	added   uint64
}

// Item is a thing in a set.
type Item[T any] struct {
	set      *Set[T]
	value    T
	source   netip.Addr
	sequence uint64        // in which it was added
	element  *list.Element // nil: it is no longer kept
}

// NewSet returns a set of at most limit things. It calls evict under its lock, so that evict never
// meets a thing that was removed; evict must not wait, nor call the set.
func NewSet[T any](limit int, evict func(T)) *Set[T] {
	return &Set[T]{limit: limit, evict: evict, sources: map[netip.Addr]*list.List{}}
}

// Add keeps a thing, and evicts another one if there are too many then.
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

// pickVictim is the oldest thing of the source that has the most; of several such sources, the oldest
// of all. A set has some hundred sources at most, so looking at each costs microseconds.
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

// Remove ends the keeping of a thing. It reports whether the thing had not been evicted.
func (i *Item[T]) Remove() bool {
	i.set.mu.Lock()
	defer i.set.mu.Unlock()
	if i.element == nil {
		return false
	}
	i.set.removeItem(i)
	return true
}

// Len is how many things are kept.
func (s *Set[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// SourceAddr is the address that counts for a peer: an IPv4 address, or the /64 network of an IPv6
// address, of which a single machine has 2^64. Peers without either share the zero address.
func SourceAddr(peer net.Addr) netip.Addr {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return SourceNetwork(tcp.AddrPort().Addr())
}

// SourceNetwork is Source of an address.
func SourceNetwork(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr
}
