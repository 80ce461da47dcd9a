package probes

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestARecordTellsThePace(t *testing.T) {
	start := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	v := visits{last: map[netip.Addr]time.Time{}}
	for n := range 40 { // two targets, in turn, every half second; the second comes late once
		late := time.Duration(0)
		if n == 21 {
			late = 300 * time.Millisecond
		}
		v.come(At(n%2), start.Add(time.Duration(n)*500*time.Millisecond+late))
	}
	got := v.take(start.Add(20 * time.Second))
	want := Record{
		Targets: 2, Probes: 40, Longest: 1300 * time.Millisecond,
		Gap1: 700 * time.Millisecond, Gap50: time.Second, Gap99: 1300 * time.Millisecond, Slot1: 0, Slot99: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Record{}, v.take(start)); diff != "" {
		t.Errorf("after it was taken (-want +got):\n%s", diff)
	}
}
