package search

import (
	"os"
	"testing"
)

// Each model is searched to the depth that is stated here, and to a greater one with SLICEFEED_LONG=1.
// States is what there is to see at the depth, at least: a model that says nothing would pass for nothing.
func TestNoShortHistoryBreaksAProperty(t *testing.T) {
	for _, row := range []struct {
		name                  string
		world                 func() World
		depth, longer, states int
	}{
		{"a writer that probes two nodes", func() World { return Writer(Setup{Nodes: 2, Sources: 1, Probing: true, ListOut: true}) }, 4, 5, 17_000},
		{"a writer that does not probe two nodes", func() World { return Writer(Setup{Nodes: 2, Sources: 1}) }, 4, 5, 8_800},
		{"a writer of two sources", func() World { return Writer(Setup{Nodes: 2, Sources: 2, Probing: true}) }, 3, 5, 3_000},
		{"a writer of three nodes", func() World { return Writer(Setup{Nodes: 3, Sources: 1, Probing: true, ListOut: true}) }, 3, 4, 5_000},
		{"a writer of three nodes, two sources and a lie", func() World {
			return Writer(Setup{Nodes: 3, Sources: 2, Probing: true, ListOut: true, Lies: true})
		}, 3, 4, 5_000},
		{"a writer of a source that stands by", func() World {
			return Writer(Setup{Nodes: 2, Sources: 2, Probing: true, StandBy: true})
		}, 3, 5, 3_000},
		{"a writer of three nodes, of which one source stands by", func() World {
			return Writer(Setup{Nodes: 3, Sources: 2, Probing: true, ListOut: true, StandBy: true})
		}, 3, 4, 7_000},
		{"a writer whose sources expire", func() World {
			return Writer(Setup{Nodes: 2, Sources: 2, Probing: true, ListOut: true, Expiry: true})
		}, 3, 5, 3_000},
		{"a writer of a source that stands by and expires", func() World {
			return Writer(Setup{Nodes: 2, Sources: 2, Probing: true, StandBy: true, Expiry: true})
		}, 4, 5, 30_000},
	} {
		t.Run(row.name, func(t *testing.T) { hold(t, row.depth, row.longer, row.states, row.world) })
	}
}

// hold searches a model to its depth.
func hold(t *testing.T, depth, longer, states int, world func() World) {
	t.Helper()
	if os.Getenv("SLICEFEED_LONG") != "" {
		depth = longer
	}
	r := Search(world(), depth)
	if r.Found != nil {
		t.Fatal(r.Found)
	}
	t.Log(r)
	if r.States < states {
		t.Errorf("%d states were seen, %d are expected at least: has the model lost some of its steps?", r.States, states)
	}
}
