package probe

import (
	"testing"
	"time"
)

// Probes of one key that start at the given seconds and end in the given order.
func TestStatusReportsRunOfAgreeingResults(t *testing.T) {
	type timedResult struct {
		started, ended float64
		result         Result
	}
	const never = 0
	for _, row := range []struct {
		name        string
		probes      []timedResult // in the order in which they end
		health      Health
		start, last float64 // of the run, in seconds
	}{
		{"pending: none", []timedResult{{1, 1.5, Fail}, {2, 2.5, Fail}}, Pending, never, never},
		{"passing: from the start of its first pass", []timedResult{{1, 1.5, Pass}}, Passing, 1, 1},
		{"passing: to the start of its youngest pass", []timedResult{{1, 1.5, Pass}, {3, 3.5, Pass}}, Passing, 1, 3},
		{"passing: failures before the first pass do not count", []timedResult{{1, 1.5, Fail}, {2, 2.5, Pass}}, Passing, 2, 2},
		{"passing: single failures do not end it", []timedResult{{1, 1.5, Pass}, {3, 3.5, Fail}, {4, 4.5, Fail}, {5, 5.5, Pass}}, Passing, 1, 5},
		{"passing: inconclusive probes do not count", []timedResult{{1, 1.5, Pass}, {3, 3.5, Inconclusive}}, Passing, 1, 1},
		{"passing: a late result of an older probe", []timedResult{{3, 3.5, Pass}, {1, 3.7, Pass}}, Passing, 3, 3},
		{"failing: from the end of its first failure", []timedResult{{1, 1.5, Pass}, {3, 3.5, Fail}, {4, 4.5, Fail}, {5, 5.5, Fail}}, Failing, 3.5, 5},
		{"failing: to the start of its youngest failure", []timedResult{{1, 2, Fail}, {3, 4, Fail}, {5, 6, Fail}, {7, 8, Fail}}, Failing, 2, 7},
		{"failing: the first failure is the one that ends first", []timedResult{{2, 3, Fail}, {1, 4, Fail}, {3, 5, Fail}}, Failing, 3, 3},
		{"failing: failures before a success do not count", []timedResult{{1, 1.5, Pass}, {2, 2.5, Fail}, {3, 3.5, Pass}, {4, 4.5, Fail}, {5, 5.5, Fail}, {6, 6.5, Fail}}, Failing, 4.5, 6},
		{"failing: nor do failures of probes that started before a success", []timedResult{{1, 1.5, Pass}, {2, 2.5, Fail}, {4, 4.5, Fail}, {3, 4.7, Pass}, {5, 5.5, Fail}, {6, 6.5, Fail}}, Failing, 4.5, 6},
		{"failing: a single success does not end it", []timedResult{{1, 2, Fail}, {2, 3, Fail}, {3, 4, Fail}, {5, 6, Pass}, {7, 8, Fail}}, Failing, 2, 7},
		{"recovered: from the start of the first of the passes", []timedResult{{1, 2, Fail}, {2, 3, Fail}, {3, 4, Fail}, {5, 6, Pass}, {7, 8, Pass}}, Passing, 5, 7},
		{"recovered: the same if they end in another order", []timedResult{{1, 2, Fail}, {2, 3, Fail}, {3, 4, Fail}, {7, 8, Pass}, {5, 9, Pass}}, Passing, 5, 7},
	} {
		t.Run(row.name, func(t *testing.T) {
			at := func(seconds float64) time.Time {
				if seconds == never {
					return time.Time{}
				}
				return startTime.Add(time.Duration(seconds * float64(time.Second)))
			}
			attempts := map[float64]Attempt{}
			s, key := NewSchedule(100), testKey(0)
			key.Spec.Interval = time.Second
			addKey(s, key, Share{}, startTime)
			for second := float64(1); second <= 10; second++ {
				a, due := s.Start(at(second), 0)
				if !due {
					t.Fatal("not due")
				}
				attempts[second] = a
			}
			for _, p := range row.probes {
				s.Finish(attempts[p.started], p.result, "why", at(p.ended))
			}
			got := s.Status(key)
			if got.Health != row.health || !got.RunStart.Equal(at(row.start)) || !got.RunLast.Equal(at(row.last)) {
				t.Errorf(
					"%v, a run from %v to %v, want %v from %v s to %v s",
					got.Health,
					got.RunStart.Sub(startTime),
					got.RunLast.Sub(startTime),
					row.health,
					row.start,
					row.last,
				)
			}
		})
	}
}

func TestExpiredStatusAndChangedSpecHaveNoRun(t *testing.T) {
	s, now := NewSchedule(1), startTime
	addKey(s, testKey(0), Share{}, now)
	a, _ := s.Start(now, 0)
	s.Finish(a, Pass, "", now)
	changed := testKey(0)
	changed.Spec.Timeout = 5 * time.Second
	addKey(s, changed, Share{}, now)
	if got := s.Status(changed); !got.RunStart.IsZero() || !got.RunLast.IsZero() {
		t.Errorf("a changed spec begins with the run from %v to %v", got.RunStart, got.RunLast)
	}
	s.Expire(now.Add(expiryIntervals * DefaultInterval))
	if got := s.Status(testKey(0)); !got.Expired || !got.RunStart.IsZero() || !got.RunLast.IsZero() {
		t.Errorf("%+v, want expired without a run", got)
	}
}
