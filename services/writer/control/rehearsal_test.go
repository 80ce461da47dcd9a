package control

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/prober"
)

func TestTheFirstWordOfAProbeIsWaitedForAsLongAsItMayTake(t *testing.T) {
	for _, tt := range []struct{ interval, timeout, want time.Duration }{
		{2 * time.Second, time.Second, 8 * time.Second},
		{5 * time.Minute, time.Second, time.Minute},
	} {
		if got := judgedWithin(prober.Spec{Interval: tt.interval, Timeout: tt.timeout}); got != tt.want {
			t.Errorf("every %s: got %s, want %s", tt.interval, got, tt.want)
		}
	}
}
