package reconciler

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slicefeed/slicefeed/services/writer/inputs"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

var addresses = cmpopts.EquateComparable(netip.Addr{})

func TestWhatIsListedComesBackAsHeld(t *testing.T) {
	judged := []verdict.Endpoint{
		{Address: netip.MustParseAddr("10.0.1.1"), Source: "default", Listed: true, Conditions: verdict.Conditions{Ready: true, Serving: true}},
		{Address: netip.MustParseAddr("10.0.1.2"), Source: "default", Verdict: verdict.Remove},
		{Address: netip.MustParseAddr("10.0.1.3"), Source: "default", Listed: true, Conditions: verdict.Conditions{Serving: true, Terminating: true}},
	}
	want := []verdict.CurrentEndpoint{
		{Address: judged[0].Address, Source: "default", Conditions: judged[0].Conditions},
		{Address: judged[2].Address, Source: "default", Conditions: judged[2].Conditions},
	}
	if diff := cmp.Diff(want, inputs.CurrentEndpoints(listed(judged)), addresses); diff != "" {
		t.Error(diff)
	}
	if got := listed(nil); len(got) > 0 {
		t.Errorf("nothing becomes %v", got)
	}
}

func TestEarliestTakesZeroForNever(t *testing.T) {
	a, b := time.Unix(1, 0), time.Unix(2, 0)
	for _, tt := range []struct{ one, other, want time.Time }{
		{a, b, a}, {b, a, a}, {time.Time{}, b, b}, {a, time.Time{}, a}, {time.Time{}, time.Time{}, time.Time{}},
	} {
		if got := earliest(tt.one, tt.other); !got.Equal(tt.want) {
			t.Errorf("earliest(%v, %v) = %v, want %v", tt.one, tt.other, got, tt.want)
		}
	}
}
