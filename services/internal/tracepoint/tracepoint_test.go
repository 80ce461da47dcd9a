package tracepoint

import "testing"

func TestLogDoesNotAllocateWithoutTrace(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Log(Reported) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
