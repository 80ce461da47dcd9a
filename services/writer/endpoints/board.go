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

// Board is where decisions are posted for others to see. It may be used by any number of
// goroutines. A nil Board takes everything and keeps nothing: the one of a rehearsal.
type Board struct {
	mu       sync.Mutex
	life     string
	window   int
	gathered *deltaset.Set[*Entry] // an entry for each port, once somebody has asked: it is as large as the target
	single   *deltaset.Set[*Entry] // an entry for each address, likewise: there may be very many
	targets  map[string]*posted    // by group
	sources  map[string]Source
	leading  bool
	synced   bool
	changed  chan struct{}
}

// posted is a target as it was last put.
type posted struct {
	target Target
	told   told // but for a managed target's backends, unless it is whole
	whole  bool
	held   int // what guards hold back

	otherPorts bool // see View
}

// Source is what a source is worth.
type Source struct {
	Name   string
	Alive  bool   // its link is up, and was in step since
	Reason string // when it is not, or does not see its own cluster
}

// NewBoard returns an empty board. The life names this run of this process: random, at most 48 bytes.
func NewBoard(life string) *Board { return newBoard(life, deltaset.Window) }

func newBoard(life string, window int) *Board {
	return &Board{
		life: life, window: window,
		targets: map[string]*posted{}, sources: map[string]Source{}, changed: make(chan struct{}),
	}
}

// all is what is told, with all backends.
func (p *posted) all() told {
	if !p.whole {
		p.told.backends, p.whole = p.target.backends(), true
	}
	return p.told
}

// Put posts what is known of a target now. It costs little when that is what was known, or while
// nobody has ever asked to follow it.
func (b *Board) Put(t Target) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	group := Name{t.Namespace, t.Service}.group()
	was := b.targets[group]
	if was == nil {
		was = &posted{}
		b.targets[group] = was
	}
	now := posted{told: t.told(), whole: t.State != Managed}
	news := !was.told.sameTarget(now.told)
	if b.gathered != nil || b.single != nil {
		now.target = t
		if news = !was.all().same(now.all()); news {
			b.tell(&t, was.told, now.told)
		}
	}
	held := 0
	for _, g := range t.Decision.Guards {
		held += g.Held
	}
	news = news || held != was.held || t.Leading != b.leading
	now.otherPorts, now.held = t.otherPorts(now.told), held
	t.Slices = nil // what they list is in told
	now.target = t
	*was, b.leading = now, t.Leading
	for i := range t.Sources {
		s := Worth(&t.Sources[i])
		news = news || b.sources[s.Name] != s
		b.sources[s.Name] = s
	}
	if news {
		b.broadcast()
	}
}

// Remove takes a target away that is ours no more.
func (b *Board) Remove(namespace, service string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	group := Name{namespace, service}.group()
	was := b.targets[group]
	if was == nil {
		return
	}
	delete(b.targets, group)
	if b.gathered != nil || b.single != nil {
		b.tell(&was.target, was.all(), told{})
	}
	b.broadcast()
}

// Synced says that all targets that were there at the start have been put: from now on the
// absence of one means something (rule R8).
func (b *Board) Synced() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.synced {
		b.synced = true
		b.broadcast()
	}
}

// Told reports whether Synced was called, and returns a channel that is closed at the next change.
func (b *Board) Told() (synced bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.synced, b.changed
}

// tell has the ledgers follow a target from what was told of it to what is. What was not told
// has no state.
func (b *Board) tell(t *Target, was, is told) {
	key := Name{t.Namespace, t.Service}.group()
	entry := func(kind Kind, key string) *Entry {
		return &Entry{Key: key, Namespace: t.Namespace, Service: t.Service, Kind: kind}
	}
	if is.state == 0 {
		b.each(func(set *deltaset.Set[*Entry]) { set.Remove(key, key) })
	} else if !was.sameTarget(is) {
		e := entry(KindTarget, key)
		e.State, e.Reason, e.Message, e.Ports = is.state, is.reason, is.message, is.ports
		e.sealed()
		b.each(func(set *deltaset.Set[*Entry]) { set.Put(e) })
	}
	merge(was.ports, is.ports, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) }, func(old, port *Port) {
		var before, after []Backend
		of := cmp.Or(port, old)
		if old != nil {
			before = was.backends
		}
		if port != nil {
			after = is.backends
		}
		at := key + "/" + of.Name
		renumbered := old != nil && port != nil && *old != *port
		altered := (old == nil) != (port == nil) || renumbered
		merge(before, after, func(a, b Backend) int { return a.Address.Compare(b.Address) }, func(had, has *Backend) {
			if had != nil && has != nil && *had == *has && !renumbered {
				return
			}
			altered = true
			switch {
			case b.single == nil:
			case has == nil:
				b.single.Remove(key, at+"/"+had.Address.String())
			default:
				e := entry(KindEndpoint, at+"/"+has.Address.String())
				e.Port, e.Backends = *port, []Backend{*has}
				b.single.Put(e.sealed())
			}
		})
		switch {
		case b.gathered == nil:
		case port == nil:
			b.gathered.Remove(key, at)
		case altered:
			e := entry(KindGroup, at)
			e.Port, e.Backends = *port, after[:min(len(after), MaxBackends)]
			e.LeftOut = len(after) - len(e.Backends)
			b.gathered.Put(e.sealed())
		}
	})
}

// each calls f with the ledgers that there are.
func (b *Board) each(f func(*deltaset.Set[*Entry])) {
	for _, set := range []*deltaset.Set[*Entry]{b.gathered, b.single} {
		if set != nil {
			f(set)
		}
	}
}

// merge walks along two sorted lists and calls f with what they have of each item: nil where
// one of them has nothing.
func merge[T any](a, b []T, order func(T, T) int, f func(a, b *T)) {
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

func (b *Board) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of anything that is told. Take it
// before Since, so that nothing falls in between.
func (b *Board) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// Status is what the entries of a selection are worth.
type Status struct {
	Synced   bool
	Leading  bool
	HeldBack int
	Sources  []Source // by name
}

// SameWord reports whether two statuses say the same.
func SameWord(a, b Status) bool {
	return a.Synced == b.Synced && a.Leading == b.Leading && a.HeldBack == b.HeldBack && slices.Equal(a.Sources, b.Sources)
}

// Update is what leads a reader to the present. Before Synced there is nothing but the status.
type Update struct {
	deltaset.Delta[*Entry]

	Status Status
}

// Name is that of a Service; without a Service it stands for a namespace.
type Name struct{ Namespace, Service string }

func (n Name) group() string { return n.Namespace + "/" + n.Service }

// Select returns the selection of some Services; of all if none is named.
func Select(services []Name) deltaset.Filter {
	if len(services) == 0 {
		return nil
	}
	wanted := make(map[string]struct{}, len(services))
	for _, n := range services {
		wanted[n.group()] = struct{}{}
	}
	return func(group string) bool {
		if _, one := wanted[group]; one {
			return true
		}
		_, all := wanted[group[:strings.IndexByte(group, '/')+1]]
		return all
	}
}

// Since returns what leads a reader of a selection from a position to the present; nil: from
// nothing. Gathered, an entry is a port with all of its addresses.
func (b *Board) Since(from *deltaset.Position, selects deltaset.Filter, gathered bool) Update {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := Update{Status: b.status(selects)}
	switch {
	case !b.synced:
	case gathered:
		u.Delta = b.kept(&b.gathered, ".g").Since(from, selects)
	default:
		u.Delta = b.kept(&b.single, ".e").Since(from, selects)
	}
	return u
}

// kept returns a ledger. It is kept from the first time on: made anew it would number other
// changes alike.
func (b *Board) kept(set **deltaset.Set[*Entry], kind string) *deltaset.Set[*Entry] {
	if *set == nil {
		*set = deltaset.New[*Entry](b.life+kind, b.window)
		for _, group := range slices.Sorted(maps.Keys(b.targets)) {
			p := b.targets[group]
			b.tell(&p.target, told{}, p.all())
		}
	}
	return *set
}

func (b *Board) status(selects deltaset.Filter) Status {
	s := Status{Synced: b.synced, Leading: b.leading}
	for name, p := range b.targets {
		if selects == nil || selects(name) {
			s.HeldBack += p.held
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.sources)) {
		s.Sources = append(s.Sources, b.sources[name])
	}
	return s
}

// Revision is the number of changes that there were since somebody first asked to follow them.
func (b *Board) Revision() (n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gathered != nil {
		n = b.gathered.Revision()
	}
	return n
}

// List returns the targets of a selection as they were last put, sorted by namespace and
// name, and what they are worth.
func (b *Board) List(selects deltaset.Filter) ([]Listing, Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Listing
	for group, p := range b.targets {
		if selects == nil || selects(group) {
			all = append(all, p.listing())
		}
	}
	slices.SortFunc(all, func(a, b Listing) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Service, b.Service))
	})
	return all, b.status(selects)
}

// Explain says why an address is, or is not, an endpoint of a Service; false: that is no target.
func (b *Board) Explain(of Name, address netip.Addr) (Explanation, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.targets[of.group()]
	if p == nil {
		return Explanation{}, false
	}
	return p.explain(address), true
}
