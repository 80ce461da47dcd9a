// Package oracle judges a run of the pair by what happened alone. It takes in one fact after
// the other and says which invariant each of them breaks. It was written from the design,
// apart from the product's code, of which it imports nothing: what both get wrong in the same
// way must have been wrong in the design. It refuses to guess: what it has not been told, it
// does not hold against anybody.
//
// It judges the invariants I1 to I5 and I7, not decisions: which of several right results a decision
// has to have is for the tests of the verdict. A write is judged by what its writer knew when it planned
// it (what its sources had told, what its prober found, its settings) and by what the slices were when
// the write took effect. Nothing that the product says about its own reasons counts.
package oracle

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Setup is what the oracle has to know of a world before it begins.
type Setup struct {
	Delays Delays
	Limit  int // how many nodes a peer may make the other side hold; 0: any number
}

// Violation is an invariant that a fact broke.
type Violation struct {
	At        time.Time
	Invariant string // I1 to I5, I7
	Rule      string // the clause, in a word or two: two violations of one rule are of one kind
	Sentence  string // what must not be
	Seen      string // what was
}

// String is the violation in one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s (%s): %s: %s", v.Invariant, v.Rule, v.Sentence, v.Seen)
}

// Oracle follows one world. It is not safe for concurrent use.
type Oracle struct {
	setup Setup
	now   time.Time
	found []Violation

	alive   map[netip.AddrPort]bool
	existed map[netip.Addr]bool // what a machine ever had
	sources map[string]*source
	writers map[string]*writer
	targets map[string]*target
	plans   map[uint64]*plan
	recent  []uint64 // the plans, oldest first

	clouded      bool // a cloud has had a fault: replicas may have resolved different machines
	contradicted bool // a cloud has told, whole, what was true before
	over         time.Time
}

// staleCloud is the kind of fault by which a cloud answers as of some time ago. Such an answer is
// whole in itself: the inventory has to believe it (feed.md#what-never-happens, a complete contradicting answer).
const staleCloud = "cloud stale"

// New returns an oracle that has seen nothing.
func New(setup Setup) *Oracle {
	setup.Delays = setup.Delays.withDefaults()
	return &Oracle{
		setup:   setup,
		alive:   map[netip.AddrPort]bool{},
		existed: map[netip.Addr]bool{},
		sources: map[string]*source{},
		writers: map[string]*writer{},
		targets: map[string]*target{},
		plans:   map[uint64]*plan{},
	}
}

// See takes in the next fact, and returns what it breaks.
func (o *Oracle) See(at time.Time, f Fact) []Violation {
	o.now, o.found = at, nil
	switch f := f.(type) {
	case Backend:
		o.alive[netip.AddrPortFrom(f.Address, f.Port)], o.existed[f.Address] = f.Alive, true
	case Truth:
		o.source(f.Source).become(at, f.Members)
	case Lies:
		o.source(f.Source).lied = true
	case Told:
		o.told(f)
	case Probed:
		o.writer(f.Writer).probed(at, f)
		o.probed(f)
	case Leads:
		w := o.writer(f.Writer)
		if f.Leads && !w.leads {
			for name, a := range w.aims {
				a.inherited = o.target(name).union()
			}
		}
		w.lead(at, f.Leads)
	case Process:
		o.writers[f.Writer] = newWriter()
	case Configured:
		o.writer(f.Writer).configure(at, f, o.target(f.Target))
	case Fenced:
		w := o.writer(f.Writer)
		w.fences[f.Source] = f
		w.changed()
	case Planned:
		o.plan(f)
	case Wrote:
		o.wrote(f)
	case Edited:
		o.target(f.Target).edit(f)
	case Noticed:
		a := o.writer(f.Writer).aim(f.Target)
		if f.Slice == "" && a.noticed[""] == 0 {
			a.inherited = o.target(f.Target).union()
		}
		a.noticed[f.Slice] = max(a.noticed[f.Slice], f.Version)
	case Acts:
		o.writer(f.Writer).aim(f.Target).act(at, f)
	case Holds:
		o.holds(f)
	case Over:
		o.over = at
	case End:
		o.end()
	case Fault:
		o.contradicted = o.contradicted || f.Kind == staleCloud
		o.clouded = o.clouded || strings.HasPrefix(f.Kind, "cloud ")
	}
	return o.found
}

// broke notes a violation.
func (o *Oracle) broke(invariant, rule, sentence, seen string, args ...any) {
	o.found = append(o.found, Violation{
		At: o.now, Invariant: invariant, Rule: rule, Sentence: sentence, Seen: fmt.Sprintf(seen, args...),
	})
}

func (o *Oracle) source(name string) *source { return entry(o.sources, name, newSource) }
func (o *Oracle) writer(name string) *writer { return entry(o.writers, name, newWriter) }
func (o *Oracle) target(name string) *target { return entry(o.targets, name, newTarget) }

// entry is what a map has under a name, which is made when it is first asked for.
func entry[T any](of map[string]*T, name string, create func() *T) *T {
	if of[name] == nil {
		of[name] = create()
	}
	return of[name]
}

// holds judges I7: what one peer makes the other hold stays within its limit.
func (o *Oracle) holds(f Holds) {
	if limit := o.setup.Limit; limit > 0 && f.Nodes > limit {
		o.broke("I7", "bounded", "memory per peer is bounded", "%s makes %s hold %d nodes, more than %d", f.Peer, f.Holder, f.Nodes, limit)
	}
}

// sorted are the keys of a map, so that the same world gives the same sentences.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
