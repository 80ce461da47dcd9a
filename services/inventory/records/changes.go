package records

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// changeTracker is what a source has told, and what of it waits to be taken. Pure: no clock, no client.
type changeTracker struct {
	source       string                      // for people
	candidates   map[string]roster.Candidate // the last word about each node, by name
	dirty        map[string]struct{}         // names to tell of
	lastValid    map[string]roster.Candidate // good words that became bad before they were taken
	partialError string
}

func newChangeTracker(source string) changeTracker {
	return changeTracker{
		source:     source,
		candidates: map[string]roster.Candidate{},
		dirty:      map[string]struct{}{},
		lastValid:  map[string]roster.Candidate{},
	}
}

// apply takes in a sound reading.
func (t *changeTracker) apply(records []record) {
	read := make(map[string]struct{}, len(records))
	var bad, nameless, kept int
	var first record // of the bad ones
	for _, r := range records {
		if r.problem != "" {
			if bad++; bad == 1 {
				first = r
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
		if nameless > 0 { // its record may be one of those that have lost their name
			kept++
			continue
		}
		delete(t.candidates, name)
		delete(t.lastValid, name)
		t.dirty[name] = struct{}{}
	}
	t.partialError = ""
	if bad > 0 {
		t.partialError = fmt.Sprintf("%d of %d records of %s cannot be used, the first: %s", bad, len(records), t.source, describeProblem(first))
	}
	if kept > 0 {
		t.partialError += fmt.Sprintf("; %d nodes without a record are kept, since %d records have no readable name", kept, nameless)
	}
}

func (t *changeTracker) upsert(c roster.Candidate) {
	before, ok := t.candidates[c.Name]
	if ok && equalCandidates(before, c) {
		return
	}
	_, waits := t.dirty[c.Name]
	switch {
	case c.Bad == "":
		delete(t.lastValid, c.Name)
	case ok && waits && before.Bad == "":
		t.lastValid[c.Name] = before
	}
	t.candidates[c.Name] = c
	t.dirty[c.Name] = struct{}{}
}

// takeChanges returns what was told since the last time, sorted by name.
func (t *changeTracker) takeChanges() (changed []roster.Candidate, removed []string) {
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

// toCandidate is what the roster judges a record by.
func (t *changeTracker) toCandidate(r record) roster.Candidate {
	question := "what does " + t.source + " say"
	if r.problem != "" {
		return roster.Candidate{
			Name: r.name,
			Bad:  fmt.Sprintf("Its record in %s cannot be used (%s): mend the record.", t.source, r.problem),
			Trail: []roster.Step{{
				Stage: roster.StageSource, Question: question, Result: roster.Failed, Saw: r.quote,
			}},
		}
	}
	c := roster.Candidate{Name: r.name, InternalIPs: []netip.Addr{r.address}, State: roster.NotReady}
	if r.ready {
		c.State = roster.Ready
	}
	worker := roster.Step{Stage: roster.StageEligibility, Question: "is it a worker", Result: roster.Passed, Saw: "worker is true"}
	if !r.worker {
		c.Excluded = roster.ControlPlane
		c.Advice = fmt.Sprintf("Its record in %s says that it is no worker, and only workers count: set worker to true if it is one.", t.source)
		worker.Result, worker.Saw = roster.Failed, "worker is false"
	}
	c.Trail = []roster.Step{{
		Stage: roster.StageSource, Question: question, Result: roster.Passed,
		Saw: fmt.Sprintf(`{"name":%q,"private_ip":%q,"ready":%t,"worker":%t}`, r.name, r.address, r.ready, r.worker),
	}, worker}
	return c
}

// equalCandidates reports whether the roster would judge the two the same.
func equalCandidates(a, b roster.Candidate) bool {
	return a.State == b.State && a.Excluded == b.Excluded && a.Bad == b.Bad && slices.Equal(a.InternalIPs, b.InternalIPs)
}

// describeProblem says what is wrong with a record, for someone who has to find it.
func describeProblem(r record) string {
	if r.name != "" {
		return fmt.Sprintf("%.80q: %s", r.name, r.problem)
	}
	return fmt.Sprintf("%s: %s", r.quote, r.problem)
}
