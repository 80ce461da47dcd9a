// Package faults runs the inventory and the writers through real faults: real processes, API servers, etcd, TLS and
// TCP, with a client that sends requests all the time through what the EndpointSlices list. Each row of the table is a
// subtest of TestFaults: a fault is injected, something changes in a cluster, the fault ends, and the slices have to be
// correct again. The tests see only what an operator could see.
//
// `make faults` runs all rows and prints their figures.
package faults

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

func TestMain(m *testing.M) { pair.Main(m) }

// row is one scenario.
type row struct {
	kind   string // where the fault is
	fault  string // what is broken
	inject fault
	// during is what changes while the fault lasts. The zero value: nothing.
	during change
	// lasts is how long the fault lasts after the change. 0: two seconds. It lasts longer if correctDuring is set and
	// the slices take longer.
	lasts time.Duration
	// correctDuring is how long after the change, during the fault, the slices may take until they are correct.
	// 0: they need not be before the fault ends.
	correctDuring time.Duration
	// correctAfter is how long after the end of the fault they may take. Mandatory.
	correctAfter time.Duration
	// extraWrites is how many writes of slices are allowed beyond those that the change needs by itself.
	extraWrites int
	// noWrites says that no writer can write during the fault. The slices then show a backend that dies as not ready
	// only after its detection bound, counted from takeover after the end of the fault.
	noWrites bool
	takeover time.Duration
	// whyLost says why requests may be lost to a wrong slice. Empty: none may be.
	whyLost string
}

// name is that of the subtest: where the fault is, what it is, what changes meanwhile, and the outcome.
func (r row) name() string {
	outcome := "the slices are correct afterwards"
	switch {
	case r.correctDuring > 0:
		outcome = "the slices are correct during the fault"
	case r.writes() == 0:
		outcome = "the slices do not change"
	}
	return fmt.Sprintf("%s/%s, %s: %s", r.kind, r.fault, cmp.Or(r.during.name, "nothing changes"), outcome)
}

// shareEnv chooses the rows: "1/3" is the first of three shares, so that three processes can run the table together. Empty: all.
const shareEnv = "SLICEFEED_FAULTS"

func chosenRows(t *testing.T) []row {
	t.Helper()
	text := os.Getenv(shareEnv)
	share, shares := 1, 1
	if n, _ := fmt.Sscanf(text, "%d/%d", &share, &shares); text != "" && (n != 2 || share < 1 || share > shares) {
		t.Fatalf("%s is %q, want a share such as 1/3", shareEnv, text)
	}
	var chosen []row
	for i, r := range rows() {
		if i%shares == share-1 {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

func TestFaults(t *testing.T) {
	var e *env // of all rows until one leaves it unusable: two control planes take long to start
	closeEnv := func() {
		if e == nil {
			return
		}
		if err := e.close(); err != nil {
			t.Error(err)
		}
		e = nil
	}
	defer closeEnv()
	for _, r := range chosenRows(t) {
		t.Run(r.name(), func(t *testing.T) {
			if e == nil {
				var err error
				if e, err = newEnv(context.WithoutCancel(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			defer func() {
				if t.Failed() {
					t.Log(e.logTails())
				}
				if err := e.reset(context.WithoutCancel(t.Context())); err != nil {
					t.Errorf("reset afterwards: %v\n%s", err, e.logTails())
					closeEnv()
				}
			}()
			runRow(t, e, r)
		})
	}
}

func TestRowsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		if r.kind == "" || r.fault == "" || r.inject == nil || r.correctAfter <= 0 {
			t.Errorf("%q lacks a kind, a fault or a bound", r.name())
		}
		if seen[r.name()] {
			t.Errorf("two rows have the name %q", r.name())
		}
		seen[r.name()] = true
	}
}
