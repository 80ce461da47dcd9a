package propagation

import (
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestGrowthIsFromTheSecondSizeToTheLast(t *testing.T) {
	measured := func(nodes, floor, pair int, inventory, writer, writes float64) *size {
		s := &size{nodes: nodes, inventory: []float64{inventory, inventory * 2}, writer: []float64{writer * 2, writer}, writes: writes}
		for range 9 {
			s.floor, s.pair = append(s.floor, time.Duration(floor)), append(s.pair, time.Duration(pair))
		}
		return s
	}
	got := (&bench{}).report([]*size{measured(4, 1, 1, 1, 1, 1), measured(100, 2, 2, 1, 2, 1), measured(5000, 4, 8, 3, 2, 1.05)})
	for i, want := range []struct {
		figure float64
		met    bool
	}{{1, true}, {1, true}, {2, false}, {3, false}, {1, true}, {1, true}, {1, true}, {1.05, false}} {
		if g := got.Goals[i]; g.Figure != want.figure || g.Met() != want.met {
			t.Errorf("%s: %v, met %t", g.Text, g.Figure, g.Met())
		}
	}
}

func TestFloorTurnsOneEndpointAndNoOther(t *testing.T) {
	endpoint := func(address string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}
	}
	before := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{endpoint("10.0.0.1"), endpoint("10.0.0.2")}}
	after := turned(before, false)
	if !lists(before, "10.0.0.1", true) || lists(after, "10.0.0.1", true) || !lists(after, "10.0.0.1", false) ||
		!lists(after, "10.0.0.2", true) {
		t.Errorf("before %v, after %v", before.Endpoints, after.Endpoints)
	}
}
