package probe

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestScheduleInvariants checks any results in any order. An endpoint becomes failing only after three
// failures without a success that started between them, and passing again only after two successes. The
// limit holds, a status without conclusive probes expires, and with free capacity there is a probe in
// every interval.
func TestScheduleInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(t, "limit")
		s, now := NewSchedule(limit), startTime
		type sent struct {
			seq    uint64
			result Result
		}
		known, healths, expired := map[Key][]sent{}, map[Key]Health{}, map[Key]bool{}
		var running []Attempt
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				k := testKey(rapid.IntRange(0, 2).Draw(t, "node"))
				addKey(s, k, Share{}, now)
			case 1:
				k := testKey(rapid.IntRange(0, 2).Draw(t, "node"))
				if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					removeKey(s, k)
					delete(known, k)
					delete(healths, k)
					delete(expired, k)
				}
			case 2, 3, 4, 5:
				if len(running) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				a := running[i]
				running = slices.Delete(running, i, i+1)
				o := Result(rapid.IntRange(0, 2).Draw(t, "result"))
				alive := s.records[a.Key] == a.record
				changed := s.Finish(a, o, "why", now)
				if !alive {
					if changed {
						t.Fatal("a probe of a removed key changed a status")
					}
					continue
				}
				known[a.Key] = append(known[a.Key], sent{a.seq, o})
				health := s.Status(a.Key).Health
				if lapsed := expired[a.Key]; lapsed != s.Status(a.Key).Expired {
					expired[a.Key] = !lapsed
					if !changed || lapsed == (o == Inconclusive) {
						t.Fatalf("after %v: expired %t, changed %t", o, !lapsed, changed)
					}
					if health == Pending {
						healths[a.Key] = Pending
						continue
					}
				} else if changed != (health != healths[a.Key]) {
					t.Fatal("the reported change differs from the status")
				}
				if changed {
					old, need, want := healths[a.Key], 1, Pass
					switch {
					case health == Pending:
						t.Fatal("pending again")
					case health == Failing:
						need, want = 3, Fail
					case old == Failing:
						need = 2
					}
					run, best := 0, 0
					results := slices.Clone(known[a.Key])
					slices.SortFunc(results, func(x, y sent) int { return cmp.Compare(x.seq, y.seq) })
					for _, r := range results {
						switch r.result {
						case want:
							run++
						case Inconclusive:
						default:
							run = 0
						}
						best = max(best, run)
					}
					if best < need {
						t.Fatalf("%v after %d in a row: %v", health, best, results)
					}
					healths[a.Key] = health
				}
			default:
				if a, due := s.Start(now, rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random")); due {
					running = append(running, a)
				}
				if len(running) > limit || s.inFlight != len(running) {
					t.Fatalf("%d in flight, counted as %d, limit %d", len(running), s.inFlight, limit)
				}
				for _, k := range s.Expire(now) {
					healths[k], expired[k] = Pending, true
				}
				if wake, due := s.Wake(); due {
					if len(s.readyQueues.items) > 0 && wake.Sub(now) > 2*time.Second {
						t.Fatalf("nothing for %v", wake.Sub(now))
					}
					if rapid.Bool().Draw(t, "wait") && wake.After(now) {
						now = wake
					}
				}
			}
			var count [len(healthNames)]int
			for _, r := range s.records {
				count[r.status.Health]++
				if len(r.contradicting) >= fall ||
					!slices.IsSortedFunc(r.contradicting, func(a, b endedProbe) int { return cmp.Compare(a.seq, b.seq) }) {
					t.Fatalf("contradictions %v", r.contradicting)
				}
			}
			if count != s.healthCounts {
				t.Fatalf("counts %v, want %v", s.healthCounts, count)
			}
		}
	})
}
