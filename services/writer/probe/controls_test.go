package probe

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// controlCase is a schedule whose keys were all probed at second 0, and again at random times.
type controlCase struct{ *Schedule }

func at(seconds float64) time.Time {
	return startTime.Add(time.Duration(seconds * float64(time.Second)))
}

// conclude ends a probe of a key that started at a time, as if the schedule had started it then.
func (c *controlCase) conclude(n int, started, ended float64, result Result) {
	r := c.records[testKey(n)]
	r.lastSeq++
	r.inFlight++
	r.lastStartedAt, r.controlDue = at(started), time.Time{}
	r.regularDue = at(started + 2)
	c.countStart(r.queue, startTime)
	c.reschedule(r)
	c.Finish(Attempt{Key: r.key, record: r, queue: r.queue, seq: r.lastSeq, startedAt: at(started)}, result, "why", at(ended))
}

// due is when each key is due, in seconds.
func (c *controlCase) due(keys int) (due []float64) {
	for n := range keys {
		due = append(due, c.records[testKey(n)].nextDue.Sub(startTime).Seconds())
	}
	return due
}

func TestContradictionPullsControlProbesForward(t *testing.T) {
	const keys = 6 // 0 to 4 are of one target, which shares 4 with another one that has 5
	for _, row := range []struct {
		name string
		do   func(c *controlCase)
		want []float64 // when each key is due
	}{
		{"none without a contradiction", func(*controlCase) {}, []float64{2, 2.1, 2.2, 2.3, 2.4, 2.5}},
		{
			"the two of its target that passed last", func(c *controlCase) { c.conclude(0, 1, 1, Fail) },
			[]float64{1.2, 2.1, 2.2, 1, 1, 2.5},
		},
		{
			"of all its targets", func(c *controlCase) { c.conclude(4, 1, 1, Fail) },
			[]float64{2, 2.1, 2.2, 1, 1.2, 1},
		},
		{
			"at the end of the failed probe", func(c *controlCase) { c.conclude(0, 1, 1.5, Fail) },
			[]float64{1.7, 2.1, 2.2, 1.5, 1.5, 2.5},
		},
		{
			"not within 200 ms of their last probe", func(c *controlCase) {
				c.conclude(3, 0.9, 0.9, Pass)
				c.conclude(0, 1, 1, Fail)
			},
			[]float64{1.2, 2.1, 2.2, 1.1, 1, 2.5},
		},
		{
			"only by the first failure", func(c *controlCase) {
				c.conclude(0, 1, 1, Fail)
				c.conclude(3, 1, 1, Pass)
				c.conclude(4, 1, 1, Pass)
				c.conclude(0, 1.2, 1.2, Fail)
			},
			[]float64{1.4, 2.1, 2.2, 3, 3, 2.5},
		},
		{
			"again by the first failure after a pass", func(c *controlCase) {
				c.conclude(0, 1, 1, Fail)
				c.conclude(3, 1, 1, Pass)
				c.conclude(4, 1, 1, Pass)
				c.conclude(0, 1.2, 1.2, Pass)
				c.conclude(0, 1.5, 1.5, Fail)
			},
			[]float64{1.7, 2.1, 2.2, 1.5, 1.5, 2.5},
		},
		{
			"one that is already due serves a second failure", func(c *controlCase) {
				c.conclude(0, 1, 1, Fail)
				c.conclude(1, 1, 1, Fail)
			},
			[]float64{1.2, 1.2, 2.2, 1, 1, 2.5},
		},
		{
			"another one if those that passed last fail as well", func(c *controlCase) {
				c.conclude(0, 1, 1, Fail)
				c.conclude(3, 1, 1.1, Fail)
			},
			[]float64{1.2, 2.1, 1.1, 1.3, 1, 2.5},
		},
		{
			"none by a pass of a failing key", func(c *controlCase) {
				for range fall {
					c.conclude(0, 1, 1, Fail)
				}
				c.conclude(3, 1.1, 1.1, Pass)
				c.conclude(4, 1.1, 1.1, Pass)
				c.conclude(0, 1.2, 1.2, Pass)
			},
			[]float64{1.4, 2.1, 2.2, 3.1, 3.1, 2.5},
		},
		{
			"none by an inconclusive probe", func(c *controlCase) { c.conclude(0, 1, 1, Inconclusive) },
			[]float64{3, 2.1, 2.2, 2.3, 2.4, 2.5},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := &controlCase{NewSchedule(100)}
			c.SetTarget("web/a", requestsFor("blue", testKey(0), testKey(1), testKey(2), testKey(3), testKey(4)), startTime)
			c.SetTarget("web/b", requestsFor("blue", testKey(4), testKey(5)), startTime)
			for n := range keys {
				c.conclude(n, float64(n)/10, float64(n)/10, Pass)
			}
			row.do(c)
			if diff := cmp.Diff(row.want, c.due(keys)); diff != "" {
				t.Errorf("due in seconds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPassingKeyPullsFailingKeysForward(t *testing.T) {
	c := &controlCase{NewSchedule(100)}
	c.SetTarget("web/a", requestsFor("blue", testKey(0), testKey(1), testKey(2), testKey(3)), startTime)
	c.SetTarget("web/b", requestsFor("blue", testKey(4)), startTime)
	for _, n := range []int{0, 1, 2, 4} {
		for range fall {
			c.conclude(n, 1, 1, Fail)
		}
	}
	c.conclude(2, 1.9, 1.9, Fail) // has failed since the run of passes began
	c.conclude(0, 1.8, 1.8, Pass)
	if diff := cmp.Diff([]float64{2, 3, 3.9, 0, 3}, c.due(5)); diff != "" {
		t.Errorf("after one pass (-want +got):\n%s", diff)
	}
	c.conclude(0, 2, 2, Pass)
	if diff := cmp.Diff([]float64{4, 2, 3.9, 0, 3}, c.due(5)); diff != "" {
		t.Errorf("when it is passing (-want +got):\n%s", diff)
	}
}

func TestControlProbeReplacesNoRegularOne(t *testing.T) {
	l := newSimulation(10)
	for n := range 2 {
		addKey(l.Schedule, testKey(n), Share{}, startTime)
	}
	l.records[testKey(1)].regularDue, l.records[testKey(1)].nextDue = at(1), at(1)
	l.updateOrder(testKey(1))
	l.backend = func(a Attempt, now time.Time) (Result, time.Duration) {
		if a.Key == testKey(0) && now.Equal(at(2)) {
			return Fail, 0
		}
		return Pass, 0
	}
	l.run(at(4))
	if got, want := l.offsets(testKey(1)), "[1 1 2 3]"; got != want {
		t.Errorf("probes of the control start at %s, want %s", got, want)
	}
}

func (s *Schedule) updateOrder(key Key) {
	r := s.records[key]
	r.queue.due.update(r)
	s.requeue(r.queue)
}

// corroborates is the rule of package verdict.
func corroborates(passing, failing Status) bool {
	return passing.Health == Passing && !passing.RunLast.Before(failing.RunStart) && failing.RunLast.After(passing.RunStart)
}

// Every second backend dies at the same moment. Each failure is corroborated by a run of passes within the bounds for one
// that dies alone.
func TestSimultaneousDeathsAreCorroboratedWithinBounds(t *testing.T) {
	for _, row := range []struct {
		name          string
		answer, bound time.Duration
	}{
		{"refuses", time.Millisecond, 2500 * time.Millisecond},
		{"silent", time.Second, 4500 * time.Millisecond},
	} {
		for _, backends := range []int{2, 4, 10, 50} {
			t.Run(fmt.Sprintf("%s, %d of %d", row.name, backends/2, backends), func(t *testing.T) {
				var took []time.Duration
				for seed := range uint64(200) {
					took = append(took, corroborationTimes(t, backends, row.answer, seed)...)
				}
				slices.Sort(took)
				p50, p99, worst := took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
				t.Logf("p50 %v, p99 %v, worst %v", p50, p99, worst)
				if p99 > row.bound {
					t.Errorf("p99 %v, worst %v, want p99 at most %v", p99, worst, row.bound)
				}
			})
		}
	}
}

// corroborationTimes returns how long it took until the failure of each dead backend was corroborated.
func corroborationTimes(t *testing.T, backends int, answer time.Duration, seed uint64) []time.Duration {
	random := rand.New(rand.NewPCG(seed, 2))
	died := at(10 + 4*random.Float64())
	l := newSimulation(512)
	l.random = random.Float64
	var keys []Key
	for n := range backends {
		keys = append(keys, testKey(n))
	}
	l.SetTarget("web/a", requestsFor("blue", keys...), startTime)
	l.backend = func(a Attempt, now time.Time) (Result, time.Duration) {
		if slices.Index(keys, a.Key)%2 == 0 || now.Before(died) {
			return Pass, time.Millisecond
		}
		return Fail, answer
	}
	l.run(died)
	took := map[Key]time.Duration{}
	for step := died; len(took) < backends/2 && step.Before(died.Add(10*time.Second)); step = step.Add(5 * time.Millisecond) {
		l.run(step)
		for n := 1; n < backends; n += 2 {
			failing := l.Status(keys[n])
			if _, counted := took[keys[n]]; counted || failing.Health != Failing {
				continue
			}
			if slices.ContainsFunc(keys, func(k Key) bool { return corroborates(l.Status(k), failing) }) {
				took[keys[n]] = step.Sub(died)
			}
		}
	}
	if len(took) != backends/2 {
		t.Fatalf("seed %d: the failures of %d of %d are corroborated", seed, len(took), backends/2)
	}
	var times []time.Duration
	for _, d := range took {
		times = append(times, d)
	}
	return times
}
