package oracle

import (
	"net/netip"
	"testing"
	"time"
)

// What a writer that stood still hears at one moment is one view to it, the last, with the newest number.
func TestANumberIsAsNewWithTheViewThatReplacedItsOwnAtOnce(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	for _, tt := range []struct {
		name string
		next int // when the empty view comes, that the number did not come with
		want int
	}{{"at once", 10, 1}, {"a second later", 11, 0}} {
		t.Run(tt.name, func(t *testing.T) {
			var r run
			r.see(false, true, at(10), at(10))
			r.see(true, false, at(tt.next), at(tt.next))
			if r.count != tt.want {
				t.Errorf("%d observations say that it is empty, want %d", r.count, tt.want)
			}
		})
	}
}

// World 42353: the Lease was deleted, and for a moment there were two leaders. The old one made an endpoint ready
// after the new one had looked, who put it out again in its first window.
func TestWhoMendsALateWriteLetsNobodyGo(t *testing.T) {
	late, somewhere := newTarget(), netip.MustParseAddr("10.0.0.1")
	c := change{address: somewhere, from: fate{listed: true, Conditions: Conditions{Ready: true, Serving: true}}, to: out}
	late.ours[somewhere] = held{Conditions: c.from.Conditions}
	late.past[somewhere] = past{as: out, late: true}
	if !(&plan{}).excused(late, c) {
		t.Error("it is counted as leaving")
	}
}
