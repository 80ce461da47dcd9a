package probe

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

var startTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func testKey(n int) Key {
	return Key{
		Address: netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}),
		Port:    30080,
		Spec:    Spec{Mode: TCP},
	}.Canonical()
}

// addKey requests one more key for a target.
func addKey(s *Schedule, key Key, share Share, now time.Time) {
	var requests []Request
	if t := s.targets[share.Target]; t != nil {
		for _, r := range t.records {
			requests = append(requests, Request{r.key, t.sources[r]})
		}
	}
	s.SetTarget(share.Target, append(requests, Request{key, share.Source}), now)
}

// removeKey removes a key from all targets.
func removeKey(s *Schedule, key Key) {
	for name, t := range s.targets {
		var requests []Request
		for _, r := range t.records {
			if r.key != key.Canonical() {
				requests = append(requests, Request{r.key, t.sources[r]})
			}
		}
		s.SetTarget(name, requests, startTime)
	}
}

// simulation steps a schedule through simulated time. backend returns the result and the duration of
// each attempt.
type simulation struct {
	*Schedule

	now     time.Time
	random  func() float64
	backend func(a Attempt, now time.Time) (Result, time.Duration)

	running     []runningProbe
	starts      map[Key][]time.Time
	changes     map[Key][]Status
	maxInFlight int
}

type runningProbe struct {
	attempt Attempt
	result  Result
	endsAt  time.Time
}

func newSimulation(limit int) *simulation {
	return &simulation{
		Schedule: NewSchedule(limit), now: startTime, random: func() float64 { return 0 },
		backend: func(Attempt, time.Time) (Result, time.Duration) { return Pass, time.Millisecond },
		starts:  map[Key][]time.Time{}, changes: map[Key][]Status{},
	}
}

// run steps until the given time.
func (sim *simulation) run(until time.Time) {
	for {
		for _, k := range sim.Expire(sim.now) {
			sim.changes[k] = append(sim.changes[k], sim.Status(k))
		}
		for {
			a, due := sim.Start(sim.now, sim.random())
			if !due {
				break
			}
			sim.starts[a.Key] = append(sim.starts[a.Key], sim.now)
			result, took := sim.backend(a, sim.now)
			f := runningProbe{a, result, sim.now.Add(took)}
			at, _ := slices.BinarySearchFunc(sim.running, f.endsAt, func(f runningProbe, endsAt time.Time) int {
				return cmp.Or(f.endsAt.Compare(endsAt), -1) // after those that end at the same time
			})
			sim.running = slices.Insert(sim.running, at, f)
			sim.maxInFlight = max(sim.maxInFlight, len(sim.running))
		}
		next := until
		if wake, due := sim.Wake(); due && wake.Before(next) {
			next = wake
		}
		if len(sim.running) > 0 && !sim.running[0].endsAt.After(next) {
			f := sim.running[0]
			sim.running = sim.running[1:]
			sim.now = f.endsAt
			if sim.Finish(f.attempt, f.result, "why", sim.now) {
				sim.changes[f.attempt.Key] = append(sim.changes[f.attempt.Key], sim.Status(f.attempt.Key))
			}
			continue
		}
		if sim.now = next; next.Equal(until) {
			return
		}
	}
}

func (sim *simulation) offsets(k Key) string {
	var out []float64
	for _, at := range sim.starts[k] {
		out = append(out, at.Sub(startTime).Seconds())
	}
	return fmt.Sprint(out)
}

// The results of one backend, one probe after the other, without delay.
func TestRiseAndFall(t *testing.T) {
	for _, row := range []struct {
		name, results, statuses string
	}{
		{"no backend starts as failing", "", "pending"},
		{"one success makes a new endpoint passing", "P", "passing"},
		{"three failures make a new endpoint failing", "FFF", "pending pending failing"},
		{"a success after failures makes a new endpoint passing", "FFP", "pending pending passing"},
		{"single failures change nothing", "PFPFP", "passing passing passing passing passing"},
		{"two failures change nothing", "PFFP", "passing passing passing passing"},
		{"three consecutive failures make it failing", "PFFF", "passing passing passing failing"},
		{"failures with successes between change nothing", "PFFPFFPFF", "passing passing passing passing passing passing passing passing passing"},
		{"two successes recover", "PFFFPP", "passing passing passing failing failing passing"},
		{"one success does not recover", "PFFFPFP", "passing passing passing failing failing failing failing"},
		{"inconclusive probes change nothing", "VPVFVFVVP", "pending passing passing passing passing passing passing passing passing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, now := NewSchedule(1), startTime
			addKey(s, testKey(0), Share{}, now)
			var statuses []string
			if row.results == "" {
				statuses = append(statuses, s.Status(testKey(0)).Health.String())
			}
			for _, o := range row.results {
				a, due := s.Start(now, 0)
				for n := 0; !due && n < 3; n++ {
					if at, _ := s.Wake(); at.After(now) {
						now = at
					}
					s.Expire(now)
					a, due = s.Start(now, 0)
				}
				if !due {
					t.Fatal("no probe is due when it should be")
				}
				s.Finish(a, map[rune]Result{'P': Pass, 'F': Fail, 'V': Inconclusive}[o], "why", now)
				statuses = append(statuses, s.Status(testKey(0)).Health.String())
			}
			if got := strings.Join(statuses, " "); got != row.statuses {
				t.Errorf("%s gave\n %s, want\n %s", row.results, got, row.statuses)
			}
		})
	}
}

func TestProbeStartTimes(t *testing.T) {
	died := func(at float64, answer time.Duration) func(Attempt, time.Time) (Result, time.Duration) {
		return func(_ Attempt, now time.Time) (Result, time.Duration) {
			if now.Sub(startTime).Seconds() >= at {
				return Fail, answer
			}
			return Pass, 0
		}
	}
	for _, row := range []struct {
		name    string
		random  float64
		backend func(Attempt, time.Time) (Result, time.Duration)
		want    string
	}{
		{"immediately, then at random, then in intervals", 0.5, died(99, 0), "[0 1 2.9 4.8 6.7]"},
		{"jitter only shortens the interval", 0, died(99, 0), "[0 0 2 4 6]"},
		{"refused: again after 200 and 400 ms", 0, died(2, 0), "[0 0 2 2.2 2.4 4.4 6.4]"},
		{"no response: the re-probes do not wait for each other", 0, died(2, time.Second), "[0 0 2 3.2 3.4 5.4]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newSimulation(10)
			l.random = func() float64 { return row.random }
			l.backend = row.backend
			addKey(l.Schedule, testKey(0), Share{}, startTime)
			l.run(startTime.Add(6900 * time.Millisecond))
			if got := l.offsets(testKey(0)); got != row.want {
				t.Errorf("probes start at %s, want %s", got, row.want)
			}
		})
	}
}

func TestSuccessCancelsReprobes(t *testing.T) {
	l := newSimulation(10)
	l.backend = func(_ Attempt, now time.Time) (Result, time.Duration) {
		if now.Equal(startTime.Add(2 * time.Second)) {
			return Fail, 0
		}
		return Pass, 0
	}
	addKey(l.Schedule, testKey(0), Share{}, startTime)
	l.run(startTime.Add(5 * time.Second))
	if got, want := l.offsets(testKey(0)), "[0 0 2 2.2 4.2]"; got != want {
		t.Errorf("probes start at %s, want %s", got, want)
	}
	if n := len(l.changes[testKey(0)]); n != 1 {
		t.Errorf("%d changes, want only the first", n)
	}
}

// The worst cases derived in schedule.go, with many failures at random times.
func TestDetectionStaysWithinBounds(t *testing.T) {
	for name, row := range map[string]struct {
		answer time.Duration
		p99    time.Duration
	}{
		"refuses": {time.Millisecond, 2500 * time.Millisecond},
		"silent":  {time.Second, 4500 * time.Millisecond},
		"silent, timeout longer than the interval": {3 * time.Second, 8500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			const backends = 1000
			random := rand.New(rand.NewPCG(1, 2))
			l := newSimulation(backends * 6)
			l.random = random.Float64
			deaths := map[Key]time.Time{}
			for n := range backends {
				addKey(l.Schedule, testKey(n), Share{}, startTime)
				deaths[testKey(n)] = startTime.Add(10*time.Second + time.Duration(random.Float64()*float64(4*time.Second)))
			}
			l.backend = func(a Attempt, now time.Time) (Result, time.Duration) {
				if now.Before(deaths[a.Key]) {
					return Pass, time.Millisecond
				}
				return Fail, row.answer
			}
			l.run(startTime.Add(25 * time.Second))
			took := make([]time.Duration, 0, backends)
			for k, died := range deaths {
				if n := len(l.changes[k]); n != 2 {
					t.Fatalf("%v: %d changes, want 2", k.Address, n)
				}
				took = append(took, l.changes[k][1].Since.Sub(died))
			}
			slices.Sort(took)
			p99, worst := took[backends*99/100], took[backends-1]
			t.Logf("p50 %v, p99 %v, worst %v", took[backends/2], p99, worst)
			if p99 > row.p99 || worst > row.p99 {
				t.Errorf("p99 %v, worst %v, want at most %v", p99, worst, row.p99)
			}
		})
	}
}

// With a timeout longer than the interval, probes of one backend overlap. The next probe to start detects its
// recovery, and late failures of earlier probes change nothing.
func TestDetectsRecoveryWithinInterval(t *testing.T) {
	const backends, timeout, bound = 250, 10 * time.Second, 2500 * time.Millisecond
	random := rand.New(rand.NewPCG(1, 2))
	l := newSimulation(backends * 20)
	l.random = random.Float64
	returns := map[Key]time.Time{}
	for n := range backends {
		k := testKey(n)
		k.Spec.Timeout = timeout
		addKey(l.Schedule, k, Share{}, startTime)
		returns[k] = startTime.Add(40*time.Second + time.Duration(random.Float64()*float64(4*time.Second)))
	}
	l.backend = func(a Attempt, now time.Time) (Result, time.Duration) {
		if now.Before(returns[a.Key]) {
			return Fail, timeout
		}
		return Pass, time.Millisecond
	}
	l.run(startTime.Add(70 * time.Second))
	for k, returned := range returns {
		changes := l.changes[k]
		if len(changes) != 2 || changes[1].Health != Passing || changes[1].Since.Sub(returned) > bound {
			t.Fatalf(
				"%v recovered after %v with statuses %+v, want failing, then passing within %v",
				k.Address,
				returned.Sub(startTime),
				changes,
				bound,
			)
		}
	}
}

func TestSpreadsProbesOverInterval(t *testing.T) {
	const backends = 1000
	random := rand.New(rand.NewPCG(1, 2))
	l := newSimulation(backends)
	l.random = random.Float64
	for n := range backends {
		addKey(l.Schedule, testKey(n), Share{}, startTime)
	}
	l.run(startTime.Add(12 * time.Second))
	perTenth := map[int64]int{}
	for _, starts := range l.starts {
		for i, at := range starts {
			if at.After(startTime.Add(4 * time.Second)) {
				perTenth[at.UnixMilli()/100]++
			}
			if i > 0 && at.Sub(starts[i-1]) > 2*time.Second {
				t.Fatalf("%v between two probes", at.Sub(starts[i-1]))
			}
		}
	}
	for tenth, n := range perTenth {
		if n > 3*backends/20 { // an even spread has 53
			t.Errorf("%d probes in tenth %d", n, tenth)
		}
	}
}

func TestLimitDelaysProbesWithoutLoss(t *testing.T) {
	l := newSimulation(10)
	for n := range 100 {
		addKey(l.Schedule, testKey(n), Share{}, startTime)
	}
	l.backend = func(Attempt, time.Time) (Result, time.Duration) { return Pass, 100 * time.Millisecond }
	l.run(startTime.Add(10 * time.Second))
	if l.maxInFlight != 6 { // one Service leaves capacity for others
		t.Errorf("at most %d in flight, want 6", l.maxInFlight)
	}
	for n := range 100 {
		if len(l.starts[testKey(n)]) < 4 || l.Status(testKey(n)).Health != Passing {
			t.Errorf("node %d was probed %d times", n, len(l.starts[testKey(n)]))
		}
	}
}

func TestLaterProbeCounts(t *testing.T) {
	begin := func(t *testing.T, n int) (*Schedule, []Attempt) {
		s := NewSchedule(10)
		addKey(s, testKey(0), Share{}, startTime)
		a, _ := s.Start(startTime, 0)
		s.Finish(a, Pass, "", startTime)
		var attempts []Attempt
		for range n {
			at, _ := s.Wake()
			a, due := s.Start(at, 0)
			if !due {
				t.Fatal("not due")
			}
			attempts = append(attempts, a)
		}
		return s, attempts
	}
	t.Run("failures of probes before a success do not count", func(t *testing.T) {
		s, a := begin(t, 4)
		s.Finish(a[3], Pass, "", startTime)
		for _, old := range a[:3] {
			s.Finish(old, Fail, "why", startTime)
		}
		if got := s.Status(testKey(0)).Health; got != Passing {
			t.Error(got)
		}
	})
	t.Run("a success does not cancel later failures", func(t *testing.T) {
		s, a := begin(t, 4)
		for _, young := range a[1:3] {
			s.Finish(young, Fail, "why", startTime)
		}
		s.Finish(a[0], Pass, "", startTime)
		if !s.Finish(a[3], Fail, "why", startTime) || s.Status(testKey(0)).Health != Failing {
			t.Error("want failing after three consecutive failures, by start")
		}
	})
}

func TestRecoversOnSuccessesOutOfOrder(t *testing.T) {
	s, now := NewSchedule(10), startTime
	start := func() Attempt {
		t.Helper()
		for range 3 { // Wake may be for an expiry
			if at, _ := s.Wake(); at.After(now) {
				now = at
			}
			s.Expire(now)
			if a, due := s.Start(now, 0); due {
				return a
			}
		}
		t.Fatal("not due")
		return Attempt{}
	}
	addKey(s, testKey(0), Share{}, now)
	for range fall {
		s.Finish(start(), Fail, "why", now)
	}
	older, younger := start(), start() // the older probe takes longer than an interval
	s.Finish(younger, Pass, "", now)
	if !s.Finish(older, Pass, "", now) || s.Status(testKey(0)).Health != Passing {
		t.Fatal("want passing after two successes")
	}
	if wake, _ := s.Wake(); wake.Before(now.Add(time.Second)) {
		t.Errorf("probed again after %s, as if the status was contradicted", wake.Sub(now))
	}
	for range fall - 1 {
		s.Finish(start(), Fail, "why", now)
	}
	if got := s.Status(testKey(0)).Health; got != Passing {
		t.Errorf("%s after %d failures", got, fall-1)
	}
}

func TestForgetsRemovedKeys(t *testing.T) {
	s := NewSchedule(1)
	addKey(s, testKey(0), Share{}, startTime)
	a, _ := s.Start(startTime, 0)
	removeKey(s, testKey(0))
	addKey(s, testKey(0), Share{}, startTime)
	if s.Finish(a, Pass, "", startTime) || s.Status(testKey(0)).Health != Pending {
		t.Error("a probe before Remove counts for a key that was added again")
	}
	if _, due := s.Start(startTime, 0); !due {
		t.Error("the old probe still takes capacity")
	}
	changed := testKey(0)
	changed.Spec.Timeout = 2 * time.Second
	if s.Status(changed).Health != Pending {
		t.Error("another spec has a status")
	}
}

func TestStatusRecordsLastPass(t *testing.T) {
	s := NewSchedule(10)
	addKey(s, testKey(0), Share{}, startTime)
	now := startTime
	for _, step := range []struct {
		result Result
		passed time.Duration // since start
	}{
		{Pass, time.Minute},
		{Fail, time.Minute},
		{Pass, 3 * time.Minute},
		{Fail, 3 * time.Minute},
		{Fail, 3 * time.Minute},
		{Fail, 3 * time.Minute},
		{Fail, 3 * time.Minute},
		{Pass, 8 * time.Minute},
		{Pass, 9 * time.Minute},
	} {
		now = now.Add(time.Minute)
		a, due := s.Start(now, 0)
		if !due {
			t.Fatal("nothing is due")
		}
		s.Finish(a, step.result, "why", now)
		if got, want := s.Status(testKey(0)).LastPassed, startTime.Add(step.passed); !got.Equal(want) {
			t.Errorf("after %s: passed at %v, want %v", now.Sub(startTime), got, want)
		}
	}
}
