package oracle

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// What a writer that stood still hears at one moment is one view to it, the last, with the newest number (world
// 28342). The numbers of a liar go back (world 4050).
func TestANumberIsNewToWhoeverDecidesNow(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	for _, tt := range []struct {
		name  string
		next  int // when the empty view comes
		with  uint64
		fresh bool
	}{
		{"with the view that replaced its own at once", 10, 5, true},
		{"but not a second later", 11, 5, false},
		{"when it grows", 11, 6, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := sight{number: 9}
			s.see(false, 4, at(5)) // it goes back
			s.see(false, 5, at(10))
			if got := s.see(true, tt.with, at(tt.next)); got != tt.fresh {
				t.Errorf("number %d is new: %t", tt.with, got)
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

// Found by a world of two sources (seed 59765): blue's budget came into use while red's was, so the sum of what both
// held back grew, and the window that blue used was taken to have begun with the first write of it.
func TestABudgetIsNotedForEachSourceByItself(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := newWriter().aim("web/web")
	a.act(at, Acts{Withheld: map[string]int{"red": 2}})
	a.act(at.Add(time.Second), Acts{Withheld: map[string]int{"blue": 1, "red": 2}})
	a.act(at.Add(2*time.Second), Acts{Withheld: map[string]int{"blue": 1, "red": 1}})
	want := []booking{{at, "red", 0}, {at.Add(time.Second), "blue", 0}, {at.Add(2 * time.Second), "red", 1}}
	if !slices.Equal(a.booked, want) {
		t.Errorf("booked %v, want %v", a.booked, want)
	}
}
