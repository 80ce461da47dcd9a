package records

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// changeTracker computes what changed between reads. It is pure: it has no clock and no client.
type changeTracker struct {
	origin       string                 // describes the origin in messages
	candidates   map[string]roster.Node // as last read, by name
	dirty        map[string]struct{}    // names that changed since takeChanges
	lastValid    map[string]roster.Node // valid candidates that became invalid before takeChanges
	partialError string                 // describes the invalid records of the last read; empty: none
}

func newChangeTracker(origin string) changeTracker {
	return changeTracker{
		origin:     origin,
		candidates: map[string]roster.Node{},
		dirty:      map[string]struct{}{},
		lastValid:  map[string]roster.Node{},
	}
}

// apply replaces the candidates with those of a complete read.
func (t *changeTracker) apply(records []record) {
	read := make(map[string]struct{}, len(records))
	var invalid, nameless, kept int
	var firstInvalid record
	for _, r := range records {
		if r.problem != "" {
			if invalid++; invalid == 1 {
				firstInvalid = r
			}
		}
		if r.name == "" {
			nameless++
			continue
		}
		read[r.name] = struct{}{}
		t.upsert(t.toCandidate(r))
	}
	for name := range t.candidates {
		if _, ok := read[name]; ok {
			continue
		}
		if nameless > 0 { // one of the records without a name may be its record
			kept++
			continue
		}
		delete(t.candidates, name)
		delete(t.lastValid, name)
		t.dirty[name] = struct{}{}
	}
	t.partialError = ""
	if invalid > 0 {
		t.partialError = fmt.Sprintf(
			"invalid records of %s: %d of %d, the first: %s",
			t.origin,
			invalid,
			len(records),
			describeProblem(firstInvalid),
		)
	}
	if kept > 0 {
		t.partialError += fmt.Sprintf(
			"; %s kept because %s no valid name",
			display.Count(
				kept,
				"node without a record is",
				"nodes without a record are",
			),
			display.Count(nameless, "record has", "records have"),
		)
	}
}

// upsert stores a candidate. If it became invalid, and takeChanges has not returned its last valid
// state yet, it keeps that state as well.
func (t *changeTracker) upsert(c roster.Node) {
	old, existed := t.candidates[c.Name]
	if existed && old.Equal(c) {
		return
	}
	_, isDirty := t.dirty[c.Name]
	switch {
	case c.Invalid == "":
		delete(t.lastValid, c.Name)
	case existed && isDirty && old.Invalid == "":
		t.lastValid[c.Name] = old
	}
	t.candidates[c.Name] = c
	t.dirty[c.Name] = struct{}{}
}

// takeChanges returns the changes since the previous call, sorted by name.
func (t *changeTracker) takeChanges() (changed []roster.Node, removed []string) {
	for _, name := range slices.Sorted(maps.Keys(t.dirty)) {
		if c, ok := t.lastValid[name]; ok {
			changed = append(changed, c)
		}
		if c, ok := t.candidates[name]; ok {
			changed = append(changed, c)
		} else {
			removed = append(removed, name)
		}
	}
	clear(t.dirty)
	clear(t.lastValid)
	return changed, removed
}

func (t *changeTracker) toCandidate(r record) roster.Node {
	if r.problem != "" {
		return roster.Node{
			Name: r.name, Invalid: r.problem, StateReason: fmt.Sprintf("its record in %s is invalid: %s", t.origin, r.quote),
		}
	}
	c := roster.Node{Name: r.name, InternalIPs: []netip.Addr{r.address}, State: roster.NotReady}
	if r.ready {
		c.State = roster.Ready
	}
	if !r.worker {
		c.Excluded, c.ExcludedBy = roster.ControlPlane, "its record has worker false"
	}
	c.StateReason = fmt.Sprintf("its record in %s has ready %t", t.origin, r.ready)
	return c
}

// describeProblem names an invalid record and its problem. A record without a name is quoted.
func describeProblem(r record) string {
	if r.name != "" {
		return fmt.Sprintf("%.80q: %s", r.name, r.problem)
	}
	return fmt.Sprintf("%s: %s", r.quote, r.problem)
}
