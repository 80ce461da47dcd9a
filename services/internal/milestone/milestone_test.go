package milestone

import "testing"

func TestAMilestoneThatNobodyTracesAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Pass(Told) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
