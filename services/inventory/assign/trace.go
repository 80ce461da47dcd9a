package assign

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

const claimQuestion = "Can the address be assigned?"

// TraceClaims records who has the addresses that a node claims, and those that it has without a claim.
func (a *Assigner) TraceClaims(node string, trace *source.Trace) {
	if c := a.nodes[node]; c != nil {
		a.traceClaims(c, trace)
	}
	if !trace.Has(source.StageClaim) {
		trace.Add(source.Skipped, source.StageClaim, claimQuestion, "not reached: no usable address")
	}
}

// TraceNotReached records that a node that is not eligible claims nothing.
func TraceNotReached(trace *source.Trace) {
	trace.Add(source.Skipped, source.StageClaim, claimQuestion, "not reached: the node is not eligible")
}

func (a *Assigner) traceClaims(c *claimant, trace *source.Trace) {
	add := func(result source.StepResult, address netip.Addr, detail string, args ...any) {
		trace.Add(result, source.StageClaim, fmt.Sprintf("Is %s assigned to it?", address), detail, args...)
	}
	for family, assigned := range c.assigned {
		switch {
		case assigned.IsValid() && assigned == c.Addresses[family] && c.prevOwner[family] != "":
			add(source.Passed, assigned, "yes; reassigned from node %q", truncate(c.prevOwner[family]))
		case assigned.IsValid() && assigned == c.Addresses[family]:
			add(source.Passed, assigned, "yes")
		case assigned.IsValid():
			add(source.Passed, assigned, "yes; the current data no longer has it, but it is kept until another address replaces it")
		}
		if contested := c.contested[family]; contested.IsValid() {
			add(source.Failed, contested, "no; node %q has it, and the same data names both", truncate(a.owners[contested].Node))
		}
		if lost := c.reassigned[family]; !assigned.IsValid() && lost.address.IsValid() {
			add(source.Failed, lost.address, "no; reassigned to node %q", truncate(lost.to))
		}
	}
	for _, address := range c.assigned.List() {
		for _, name := range slices.Sorted(maps.Keys(a.contenders[address])) {
			trace.Add(
				source.Note,
				source.StageClaim,
				fmt.Sprintf("Other claimants of %s?", address),
				"node %q; the same data names both",
				truncate(name),
			)
		}
	}
}

func truncate(text string) string { return display.Truncate(text, 120) }
