package verdict

import (
	"testing"
	"time"
)

func TestEarliestTakesZeroForNever(t *testing.T) {
	a, b := time.Unix(1, 0), time.Unix(2, 0)
	for _, tt := range []struct{ one, other, want time.Time }{
		{a, b, a}, {b, a, a}, {time.Time{}, b, b}, {a, time.Time{}, a}, {time.Time{}, time.Time{}, time.Time{}},
	} {
		if got := Earliest(tt.one, tt.other); !got.Equal(tt.want) {
			t.Errorf("Earliest(%v, %v) = %v, want %v", tt.one, tt.other, got, tt.want)
		}
	}
}
