package figures

import (
	"slices"
	"testing"
	"time"
)

// upTo returns 1 ms, 2 ms, … n ms, the largest first.
func upTo(n int) []time.Duration {
	var all []time.Duration
	for i := range n {
		all = append(all, time.Duration(n-i)*time.Millisecond)
	}
	return all
}

func TestAPercentileIsAValueThatWasMeasured(t *testing.T) {
	for _, tt := range []struct {
		n, p int
		want time.Duration
	}{
		{1, 50, time.Millisecond},
		{1, 99, time.Millisecond},
		{10, 50, 5 * time.Millisecond},
		{10, 99, 10 * time.Millisecond},
		{200, 50, 100 * time.Millisecond},
		{200, 99, 198 * time.Millisecond},
	} {
		samples := upTo(tt.n)
		before := slices.Clone(samples)
		if got := Percentile(samples, tt.p); got != tt.want {
			t.Errorf("percentile %d of 1 to %d ms: %s, want %s", tt.p, tt.n, got, tt.want)
		}
		if !slices.Equal(samples, before) {
			t.Error("the samples were changed")
		}
	}
}
