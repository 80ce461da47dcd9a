package floor

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestTheFloorTurnsOneEndpointAndNoOther(t *testing.T) {
	before := Slice("floor", First, 3)
	after := Turned(before, false)
	for _, tt := range []struct {
		name    string
		slice   *discoveryv1.EndpointSlice
		address string
		ready   bool
		says    bool
	}{
		{"what was stays as it was", before, First.String(), true, true},
		{"the first is turned", after, First.String(), false, true},
		{"and so not what it was", after, First.String(), true, false},
		{"the second is not", after, First.Next().String(), true, true},
		{"what is not listed is neither ready", after, "10.9.9.9", true, false},
		{"nor not ready", after, "10.9.9.9", false, false},
	} {
		if got := Says(tt.slice, tt.address, tt.ready); got != tt.says {
			t.Errorf("%s: says so: %t", tt.name, got)
		}
	}
	if n := len(after.Endpoints); n != 3 {
		t.Errorf("it has %d endpoints", n)
	}
}
