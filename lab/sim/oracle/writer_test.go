package oracle

import (
	"net/netip"
	"testing"
)

// World 42353: the Lease was deleted, and for a moment there were two leaders. The old one made an endpoint ready
// after the new one had looked, who put it out again in its first window.
func TestWhoMendsALateWriteLetsNobodyGo(t *testing.T) {
	late, somewhere := newTarget(), netip.MustParseAddr("10.0.0.1")
	c := change{address: somewhere, from: fate{listed: true, Conditions: Conditions{Ready: true, Serving: true}}, to: out}
	late.ours[somewhere] = held{Conditions: c.from.Conditions}
	late.past[somewhere] = past{as: out, late: true}
	if !late.mends(c) {
		t.Error("it is counted as leaving")
	}
}
