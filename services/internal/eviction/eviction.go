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

// Kept is a thing in a set.
type Kept[T any] struct {
	set    *Set[T]
	thing  T
	source netip.Addr
	order  uint64        // in which it was added
	place  *list.Element // nil: it is no longer kept
}

// NewSet returns a set of at most limit things. It calls evict under its lock, so that evict never
// meets a thing that was removed; evict must not wait, nor call the set.
func NewSet[T any](limit int, evict func(T)) *Set[T] {
	return &Set[T]{limit: limit, evict: evict, sources: map[netip.Addr]*list.List{}}
}

// Add keeps a thing, and evicts another one if there are too many then.
func (s *Set[T]) Add(source netip.Addr, thing T) *Kept[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.added++
	k := &Kept[T]{set: s, thing: thing, source: source, order: s.added}
	all := s.sources[source]
	if all == nil {
		all = list.New()
		s.sources[source] = all
	}
	k.place = all.PushBack(k)
	if s.size++; s.size > s.limit {
		v := s.victim()
		s.remove(v)
		s.evict(v.thing)
	}
	return k
}

// victim is the oldest thing of the source that has the most; of several such sources, the oldest
// of all. A set has some hundred sources at most, so looking at each costs microseconds.
func (s *Set[T]) victim() *Kept[T] {
	var victim *Kept[T]
	most := 0
	for _, all := range s.sources {
		oldest := all.Front().Value.(*Kept[T])
		if n := all.Len(); n > most || n == most && oldest.order < victim.order {
			victim, most = oldest, n
		}
	}
	return victim
}

func (s *Set[T]) remove(k *Kept[T]) {
	all := s.sources[k.source]
	all.Remove(k.place)
	k.place = nil
	s.size--
	if all.Len() == 0 {
		delete(s.sources, k.source)
	}
}

// Remove ends the keeping of a thing. It reports whether the thing had not been evicted.
func (k *Kept[T]) Remove() bool {
	k.set.mu.Lock()
	defer k.set.mu.Unlock()
	if k.place == nil {
		return false
	}
	k.set.remove(k)
	return true
}

// Len is how many things are kept.
func (s *Set[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Source is the address that counts for a peer: an IPv4 address, or the /64 network of an IPv6
// address, of which a single machine has 2^64. Peers without either share the zero address.
func Source(peer net.Addr) netip.Addr {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return Network(tcp.AddrPort().Addr())
}

// Network is Source of an address.
func Network(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr
}
