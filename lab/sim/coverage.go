package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Rules are those of the verdict, in the order in which they speak.
var Rules = []string{"allowlist", "initial-sync", "panic", "empty", "trust", "table", "expiry", "failover", "floor", "shrink"}

// Coverage says in how many worlds each rule of the verdict spoke while each kind of fault was in
// force.
type Coverage struct {
	Worlds int
	Cells  map[Cell]int
}

// Add takes in a world.
func (c *Coverage) Add(r Result) {
	if c.Cells == nil {
		c.Cells = map[Cell]int{}
	}
	c.Worlds++
	for cell := range r.Covered {
		c.Cells[cell]++
	}
}

// Empty are the cells that no world has filled, though one could.
func (c *Coverage) Empty() []Cell {
	var empty []Cell
	for _, kind := range Kinds {
		for _, rule := range Rules {
			cell := Cell{kind, rule}
			if c.Cells[cell] == 0 && Unfillable[cell] == "" {
				empty = append(empty, cell)
			}
		}
	}
	return empty
}

// Table is all of it for people: a line for each kind of fault. A dash stands where nothing can
// be.
func (c *Coverage) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "worlds in which a rule spoke while a fault was in force (of %d):\n%-25s", c.Worlds, "")
	for _, rule := range Rules {
		fmt.Fprintf(&b, " %13s", rule)
	}
	b.WriteByte('\n')
	for _, kind := range Kinds {
		fmt.Fprintf(&b, "%-25s", kind)
		for _, rule := range Rules {
			cell := Cell{kind, rule}
			count := strconv.Itoa(c.Cells[cell])
			if c.Cells[cell] == 0 && Unfillable[cell] != "" {
				count = "-"
			}
			fmt.Fprintf(&b, " %13s", count)
		}
		b.WriteByte('\n')
	}
	if empty := c.Empty(); len(empty) > 0 {
		words := make([]string, 0, len(empty))
		for _, cell := range empty {
			words = append(words, string(cell.Kind)+" × "+cell.Rule)
		}
		slices.Sort(words)
		fmt.Fprintf(&b, "%d cells are empty that could be filled: %s\n", len(empty), strings.Join(words, ", "))
	}
	return b.String()
}

// Unfillable are the cells that cannot be filled, each with the reason.
var Unfillable = unfillable()

func unfillable() map[Cell]string {
	cells := map[Cell]string{}
	for _, rule := range Rules {
		// Between the edit and the moment at which a writer hears of it some rules do speak.
		cells[Cell{OptedOut, rule}] = "nothing is decided on a Service that has opted out"
	}
	cells[Cell{FenceChanged, "expiry"}] = "the writers start anew, and a new leader waits as long as expire-after"
	return cells
}
