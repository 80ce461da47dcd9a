package records

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// told is what a source has told, and what of it waits to be taken. Pure: no clock, no client.
type told struct {
	source string                      // for people
	last   map[string]roster.Candidate // the last word about each node, by name
	dirty  map[string]struct{}         // names to tell of
	owed   map[string]roster.Candidate // good words that became bad before they were taken
	flaw   string
}

func newTold(source string) told {
	return told{
		source: source,
		last:   map[string]roster.Candidate{},
		dirty:  map[string]struct{}{},
		owed:   map[string]roster.Candidate{},
	}
}

// tell takes in a sound reading.
func (t *told) tell(records []record) {
	read := make(map[string]struct{}, len(records))
	var bad, nameless, kept int
	var first record // of the bad ones
	for _, r := range records {
		if r.bad != "" {
			if bad++; bad == 1 {
				first = r
			}
		}
		if r.name == "" {
			nameless++
			continue
		}
		read[r.name] = struct{}{}
		t.upsert(t.candidate(r))
	}
	for name := range t.last {
		if _, ok := read[name]; ok {
			continue
		}
		if nameless > 0 { // its record may be one of those that have lost their name
			kept++
			continue
		}
		delete(t.last, name)
		delete(t.owed, name)
		t.dirty[name] = struct{}{}
	}
	t.flaw = ""
	if bad > 0 {
		t.flaw = fmt.Sprintf("%d of %d records of %s cannot be used, the first: %s", bad, len(records), t.source, problem(first))
	}
	if kept > 0 {
		t.flaw += fmt.Sprintf("; %d nodes without a record are kept, since %d records have no readable name", kept, nameless)
	}
}

func (t *told) upsert(c roster.Candidate) {
	before, ok := t.last[c.Name]
	if ok && alike(before, c) {
		return
	}
	_, waits := t.dirty[c.Name]
	switch {
	case c.Bad == "":
		delete(t.owed, c.Name)
	case ok && waits && before.Bad == "":
		t.owed[c.Name] = before
	}
	t.last[c.Name] = c
	t.dirty[c.Name] = struct{}{}
}

// take returns what was told since the last time, sorted by name.
func (t *told) take() (changed []roster.Candidate, removed []string) {
	for _, name := range slices.Sorted(maps.Keys(t.dirty)) {
		if c, ok := t.owed[name]; ok {
			changed = append(changed, c)
		}
		if c, ok := t.last[name]; ok {
			changed = append(changed, c)
		} else {
			removed = append(removed, name)
		}
	}
	clear(t.dirty)
	clear(t.owed)
	return changed, removed
}

// candidate is what the roster judges a record by.
func (t *told) candidate(r record) roster.Candidate {
	question := "what does " + t.source + " say"
	if r.bad != "" {
		return roster.Candidate{
			Name: r.name,
			Bad:  fmt.Sprintf("Its record in %s cannot be used (%s): mend the record.", t.source, r.bad),
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

// alike reports whether the roster would judge the two the same.
func alike(a, b roster.Candidate) bool {
	return a.State == b.State && a.Excluded == b.Excluded && a.Bad == b.Bad && slices.Equal(a.InternalIPs, b.InternalIPs)
}

// problem says what is wrong with a record, for someone who has to find it.
func problem(r record) string {
	if r.name != "" {
		return fmt.Sprintf("%.80q: %s", r.name, r.bad)
	}
	return fmt.Sprintf("%s: %s", r.quote, r.bad)
}
