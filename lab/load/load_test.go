package load

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slicefeed/slicefeed/lab/netns"
)

const (
	nodes       = 5000
	subscribers = 1000

	changes = 50 // measured one by one, at rest and again beside one who never reads
	few     = 10 // measured in the midst of each attack
)

const gate = "SLICEFEED_LOAD"

func enabled() bool { return os.Getenv(gate) == "1" }

func TestMain(m *testing.M) {
	if !enabled() { // without a namespace too: the run must compile, and print what it lacks
		os.Exit(m.Run())
	}
	netns.Main(m)
}

// The parts build upon each other, so the run ends with the first that fails.
func TestTheInventoryUnderLoadAndAbuse(t *testing.T) {
	if !enabled() {
		t.Skipf("it takes minutes and both cores: make load, or %s=1 (make verify does)", gate)
	}
	s := newScene(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // except what waits for the inventory
	defer s.leave()
	for _, part := range []struct {
		name string
		play func(*scene)
	}{
		{"1,000 subscribers at once get 5,000 nodes", everybodyComes},
		{"one that never reads delays no other, and is ended", oneNeverReads},
		{"10,000 half-open handshakes lock no client out", halfOpen},
		{"rubbish and a flood of calls harm only themselves", abuse},
	} {
		ok := t.Run(part.name, func(t *testing.T) {
			inner := *s
			inner.t = t
			start := time.Now()
			part.play(&inner)
			fmt.Fprintf(os.Stdout, "    %s (%s)\n", part.name, time.Since(start).Round(time.Second))
		})
		if !ok {
			t.Fatalf("the inventory's log: %s", s.inventory.Tail())
		}
	}
}
