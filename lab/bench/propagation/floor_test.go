package propagation

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestFloorTurnsOneEndpointAndNoOther(t *testing.T) {
	before := newSlice("floor", 3)
	after := turned(before, false)
	for _, tt := range []struct {
		name    string
		slice   *discoveryv1.EndpointSlice
		address string
		ready   bool
		lists   bool
	}{
		{"the slice before stays as it was", before, floorAddress.String(), true, true},
		{"the first is turned", after, floorAddress.String(), false, true},
		{"and is no longer ready", after, floorAddress.String(), true, false},
		{"the second is not turned", after, floorAddress.Next().String(), true, true},
		{"an address that is not listed is not ready", after, "10.9.9.9", true, false},
		{"and not unready", after, "10.9.9.9", false, false},
	} {
		if got := lists(tt.slice, tt.address, tt.ready); got != tt.lists {
			t.Errorf("%s: got %t", tt.name, got)
		}
	}
	if n := len(after.Endpoints); n != 3 {
		t.Errorf("it has %d endpoints", n)
	}
}
