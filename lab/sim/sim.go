// Package sim runs worlds: the cores of both halves, as they are in the product, on one
// goroutine and from one queue of events, which stands for network, API servers, cloud, probes,
// processes and Leases. It promises that what happens is a function of the Script alone, byte for
// byte, and that package oracle is told all of it, which judges without knowing the product.
// It refuses to test the shells around the cores: lab/e2e does that with the real ones.
package sim

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicefeed/slicefeed/lab/sim/oracle"
)

// Result is what became of a world.
type Result struct {
	Script     Script
	Violations []oracle.Violation
	Covered    map[Cell]int // how often a guard acted while a fault was in force
	Events     int          // that happened
	Writes     int          // that changed a slice
	Lasted     time.Duration
}

// Cell is a kind of fault and a rule of the verdict that spoke while it was in force.
type Cell struct {
	Kind Kind
	Rule string
}

// Play runs a world, in a bubble of synctest whose clock is the world's. Its story goes to trace,
// a line for each event; nil: nobody reads it.
func Play(t *testing.T, s Script, trace io.Writer) (r Result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { r = newWorld(s, trace).play() })
	return r
}
