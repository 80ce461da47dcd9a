package stream

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// Window is the largest number of changes that a reader may lag behind and still resume by its cursor (rule R6).
const Window = 4096

// Entry is a member of a set. Entries are immutable.
type Entry[T any] struct {
	Group, Key  string // no two groups share a key
	Fingerprint contract.Digest
	Value       T

	size int // bytes of the content in a message
}

// NewEntry returns an entry whose fingerprint is that of its content: what is published of the value, except for ages.
// If two versions encode it differently, each client that moves between them receives its complete set once more.
// Content that cannot be encoded cannot be sent either.
func NewEntry[T any](group, key string, value T, content proto.Message) *Entry[T] {
	encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(content)
	sum := sha256.Sum256(encoded)
	return &Entry[T]{Group: group, Key: key, Fingerprint: contract.Digest(sum[:]), Value: value, size: len(encoded)}
}

func (e *Entry[T]) compare(o *Entry[T]) int {
	return cmp.Or(cmp.Compare(e.Group, o.Group), cmp.Compare(e.Key, o.Key))
}

// Position identifies a state of a set, or of a selection of it: a cursor and the digest at it.
type Position struct {
	Epoch    string
	Revision uint64
	Digest   contract.Digest
}

// Changes take a reader to the current set. They are immutable, and most are shared by all readers at the same position.
type Changes[T any] struct {
	At    Position // the position that it leads to
	Count int      // entries in the set at that position

	Reset   bool        // Upserts is the complete set
	Upserts []*Entry[T] // sorted by group and key
	Removed []string    // keys, sorted

	shared bool // by the set, until it changes
}

// Size is the number of upserts and removals.
func (d *Changes[T]) Size() int { return len(d.Removed) + len(d.Upserts) }

// Selection is the part of a set that a reader sees; nil: all of it.
type Selection struct {
	names []string // sorted
	key   string
}

// Select returns a selection of groups. A name that ends in a slash selects all groups with this prefix, up to their
// first slash. Without names it is the whole set.
func Select(names []string) *Selection {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return &Selection{names, strings.Join(names, "\n")}
}

// Has reports whether a group is selected.
func (s *Selection) Has(group string) bool {
	if s == nil {
		return true
	}
	if _, ok := slices.BinarySearch(s.names, group); ok {
		return true
	}
	_, ok := slices.BinarySearch(s.names, group[:strings.IndexByte(group, '/')+1])
	return ok
}

// cacheKey is different for each selection.
func (s *Selection) cacheKey() string {
	if s == nil {
		return ""
	}
	return s.key
}

// Set holds entries and their recent changes, so that a reader can catch up from any earlier position. One Changes takes
// a reader from any position to the current set, and an idle reader costs nothing. It is not safe for concurrent use.
//
// Entries are grouped, so that a reader of a few groups costs no more than those groups. A set keeps nothing for each
// reader: it derives the digest of an earlier position by undoing the recent changes.
type Set[T any] struct {
	epoch    string
	groups   map[string]group[T]
	revision uint64
	least    int
	window   int
	size     int      // number of entries
	peak     int      // the largest size so far
	recent   []change // the last changes, up to twice as many as keep says
	shared   map[changesKey]*Changes[T]
}

type group[T any] struct {
	entries []*Entry[T] // sorted by key; never modified, because readers share it
	digest  contract.Digest
}

// change records enough to find the entry's current state, to know whether a reader from before the
// change has the entry, and to restore the digest from before it.
type change struct {
	group, key string
	existed    bool            // the entry was in the set before the change
	xor        contract.Digest // difference between the digests before and after
}

// changesKey identifies changes to the current set.
type changesKey struct {
	selection string
	lag       int // changes that it has; reset: the complete set
}

const (
	reset = -1

	maxShared = 64 // positions and selections whose readers share changes
)

// NewSet returns an empty set. The epoch must be unique, because a cursor does not distinguish two sets
// of one epoch. The set keeps as many changes as it had entries, but at least and at most these: to a reader that lags
// by more, the whole set costs no more than its changes.
func NewSet[T any](epoch string, least, window int) *Set[T] {
	return &Set[T]{epoch: epoch, groups: map[string]group[T]{}, least: least, window: window, shared: map[changesKey]*Changes[T]{}}
}

// Group returns the entries of a group, sorted by key. They must not be modified.
func (s *Set[T]) Group(name string) []*Entry[T] { return s.groups[name].entries }

// Replace makes these the entries of a group. They are sorted by key, and must not be modified afterwards.
func (s *Set[T]) Replace(name string, after []*Entry[T]) {
	old := s.groups[name]
	before, digest := old.entries, old.digest
	s.size += len(after) - len(before)
	s.peak = max(s.peak, s.size)
	for i, j := 0, 0; i < len(before) || j < len(after); {
		var c change
		switch {
		case i < len(before) && j < len(after) && before[i] == after[j]:
			i, j = i+1, j+1
			continue
		case j == len(after) || i < len(before) && before[i].Key < after[j].Key:
			c = change{name, before[i].Key, true, before[i].Fingerprint}
			i++
		case i == len(before) || after[j].Key < before[i].Key:
			c = change{name, after[j].Key, false, after[j].Fingerprint}
			j++
		default:
			c = change{name, after[j].Key, true, before[i].Fingerprint}
			c.xor.XOR(after[j].Fingerprint)
			i, j = i+1, j+1
			if c.xor == (contract.Digest{}) {
				continue // only unpublished content differs
			}
		}
		digest.XOR(c.xor)
		s.record(c)
	}
	clear(s.shared)
	if s.groups[name] = (group[T]{after, digest}); len(after) == 0 {
		delete(s.groups, name)
	}
}

func (s *Set[T]) record(c change) {
	s.revision++
	s.recent = append(s.recent, c)
	if keep := s.keep(); len(s.recent) >= 2*keep {
		s.recent = slices.Clone(s.recent[len(s.recent)-keep:])
	}
}

// keep is how many of the last changes a reader may lag behind.
func (s *Set[T]) keep() int { return min(max(s.peak, s.least), s.window) }

// Since returns the changes from a position to the current set, within a selection; a nil position means that the
// reader has nothing. They depend on nothing else, so a slow reader skips intermediate states (rule R10).
func (s *Set[T]) Since(from *Position, selection *Selection) *Changes[T] {
	at, count := Position{Epoch: s.epoch, Revision: s.revision}, 0
	for name, g := range s.groups {
		if selection.Has(name) {
			at.Digest.XOR(g.digest)
			count += len(g.entries)
		}
	}
	changes := s.changesSince(from, at.Digest, selection)
	key := changesKey{selection.cacheKey(), len(changes)}
	if changes == nil {
		key.lag = reset
	}
	d := s.shared[key]
	if d == nil {
		d = &Changes[T]{At: at, Count: count, Reset: changes == nil}
		if d.Reset { // rule R7
			d.Upserts = s.entries(selection)
		} else {
			d.Upserts, d.Removed = s.newestStates(changes, selection)
		}
		// A client can make up any number of selections, each of which may be nearly the whole set.
		if d.shared = len(s.shared) < maxShared && (selection == nil || !d.Reset); d.shared {
			s.shared[key] = d
		}
	}
	return d
}

// changesSince returns the changes since a position, none if its digest is the current one (rule R5); nil: the position
// is none of this set, or they are not kept (R6).
func (s *Set[T]) changesSince(from *Position, digest contract.Digest, selection *Selection) []change {
	switch {
	case from == nil:
		return nil
	case from.Digest == digest:
		return []change{}
	case from.Epoch != s.epoch || from.Revision >= s.revision:
		return nil
	}
	lag := s.revision - from.Revision
	if lag > uint64(min(len(s.recent), s.keep())) {
		return nil
	}
	changes := s.recent[len(s.recent)-int(lag):]
	for _, c := range changes {
		if selection.Has(c.group) {
			digest.XOR(c.xor)
		}
	}
	if digest != from.Digest {
		return nil
	}
	return changes
}

func (s *Set[T]) newestStates(changes []change, selection *Selection) (upserts []*Entry[T], removed []string) {
	seen := map[string]struct{}{}
	for _, c := range changes {
		if _, ok := seen[c.key]; ok || !selection.Has(c.group) {
			continue
		}
		seen[c.key] = struct{}{}
		if i, ok := Find(s.Group(c.group), c.key); ok {
			upserts = append(upserts, s.Group(c.group)[i])
		} else if c.existed { // the reader never saw an entry that was added and removed since
			removed = append(removed, c.key)
		}
	}
	slices.SortFunc(upserts, (*Entry[T]).compare)
	slices.Sort(removed)
	return upserts, removed
}

// Find returns where the entry of a key is in a group, or belongs.
func Find[T any](entries []*Entry[T], key string) (at int, found bool) {
	return slices.BinarySearchFunc(entries, key, func(e *Entry[T], key string) int { return cmp.Compare(e.Key, key) })
}

// entries returns the selected entries.
func (s *Set[T]) entries(selection *Selection) []*Entry[T] {
	var groups [][]*Entry[T]
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		if selection.Has(name) {
			groups = append(groups, s.groups[name].entries)
		}
	}
	if len(groups) == 1 {
		return groups[0]
	}
	return slices.Concat(groups...)
}
