// Package oracle judges a run of the pair by what happened alone. It takes in one fact after
// the other and says which invariant each of them breaks. It was written from the design,
// apart from the product's code, of which it imports nothing: what both get wrong in the same
// way must have been wrong in the design. It refuses to guess: what it has not been told, it
// does not hold against anybody.
package oracle

import (
	"fmt"
	"time"
)

// Setup is what the oracle has to know of a world before it begins.
type Setup struct {
	Delays Delays
	Limits map[What]int // the largest size of each kind; a kind that is not in it is not judged
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
}

// New returns an oracle that has seen nothing.
func New(setup Setup) *Oracle {
	setup.Delays = setup.Delays.withDefaults()
	return &Oracle{setup: setup}
}

// See takes in the next fact, and returns what it breaks.
func (o *Oracle) See(time.Time, Fact) []Violation {
	return nil
}

// Due is when the slices have to be right: zero until all faults are over. A world goes on
// until then, and ends.
func (o *Oracle) Due() time.Time { return time.Time{} }
