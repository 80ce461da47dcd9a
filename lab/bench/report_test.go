package bench

import (
	"strings"
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

func TestTheReportSaysWhetherTheGoalIsMet(t *testing.T) {
	twice := upTo(100)
	for i := range twice {
		twice[i] *= 2
	}
	for _, tt := range []struct {
		name  string
		pair  []time.Duration
		met   bool
		words []string
	}{
		{"as fast as the floor", upTo(100), true, []string{"1.00 x", ": met"}},
		{"twice the floor", twice, false, []string{"2.00 x", "NOT met"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newReport(upTo(100), tt.pair)
			if r.GoalsMet != tt.met {
				t.Errorf("goals met: %t, want %t", r.GoalsMet, tt.met)
			}
			for _, word := range tt.words {
				if !strings.Contains(r.String(), word) {
					t.Errorf("the table lacks %q:\n%s", word, r)
				}
			}
		})
	}
}
