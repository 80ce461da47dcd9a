package prober

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestAStatusExpiresAfterThreeIntervalsWithoutAConclusiveProbe(t *testing.T) {
	const never = 0
	for _, row := range []struct {
		name    string
		timeout time.Duration
		before  string  // outcomes of the first probes: P, F
		then    Outcome // of all that follow
		takes   time.Duration
		want    float64 // seconds from the last conclusive probe until it is pending
	}{
		{"a passing one that cannot be probed", 0, "P", Void, 0, 6},
		{"a failing one that cannot be probed", 0, "FFF", Void, 0, 6},
		{"one that never was judged", 0, "", Void, 0, 6},
		{"one that is contradicted", 0, "PF", Void, 0, 6},
		{"while probes pass", 0, "P", Pass, 0, never},
		{"while probes fail", 0, "FFF", Fail, 0, never},
		{"while a probe that takes longer than three intervals is under way", 20 * time.Second, "P", Pass, 15 * time.Second, never},
		{"when such a probe has come to no conclusion", 20 * time.Second, "P", Void, 9 * time.Second, 26},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := key(0)
			k.Spec.Timeout = row.timeout
			s, now := NewSchedule(100), start
			s.Add(k, Share{}, now)
			concluded := now
			next := func() Attempt {
				for {
					if a, due := s.Start(now, 0); due {
						return a
					}
					now, _ = s.Wake()
				}
			}
			for _, o := range row.before {
				a := next()
				s.Finish(a, map[rune]Outcome{'P': Pass, 'F': Fail}[o], "why", now)
				concluded = now
			}
			type flight struct {
				a    Attempt
				ends time.Time
			}
			var flying []flight
			var expired time.Time
			for until := now.Add(40 * time.Second); now.Before(until) && expired.IsZero(); {
				for _, gone := range s.Expire(now) {
					if gone == k {
						expired = now
					}
				}
				for {
					a, due := s.Start(now, 0)
					if !due {
						break
					}
					flying = append(flying, flight{a, now.Add(row.takes)})
				}
				wake, some := s.Wake()
				if len(flying) > 0 && (!some || !flying[0].ends.After(wake)) {
					now = flying[0].ends
					s.Finish(flying[0].a, row.then, "too many open files", now)
					flying = flying[1:]
					if s.Word(k).Expired && expired.IsZero() {
						expired = now
					}
					continue
				}
				now = wake
			}
			switch {
			case row.want == never && !expired.IsZero():
				t.Errorf("it has expired after %v", expired.Sub(concluded))
			case row.want != never && expired.Sub(concluded).Seconds() != row.want:
				t.Errorf("it has expired after %v, want %v s: %+v", expired.Sub(concluded), row.want, s.Word(k))
			case row.want != never && (s.Word(k).Health != Unjudged || s.Word(k).Detail != "too many open files"):
				t.Errorf("it is %+v, want pending, with the reason", s.Word(k))
			}
		})
	}
}

func TestAStatusThatExpiredComesBackWithTheFirstConclusiveProbe(t *testing.T) {
	s, now := NewSchedule(1), start
	s.Add(key(0), Share{}, now)
	probe := func(o Outcome) bool {
		for {
			now, _ = s.Wake()
			s.Expire(now)
			if a, due := s.Start(now, 0); due {
				return s.Finish(a, o, "why", now)
			}
		}
	}
	for _, o := range []Outcome{Pass, Void, Void, Void, Void} {
		probe(o)
	}
	if w := s.Word(key(0)); !w.Expired || !w.Passed.Equal(start) || s.counts[Unjudged] != 1 || s.counts[Passing] != 0 {
		t.Fatalf("after four probes without a conclusion: %+v, %v", w, s.counts)
	}
	if !probe(Fail) || s.Word(key(0)).Expired || s.Word(key(0)).Health != Unjudged {
		t.Errorf("after a failure: %+v, want not judged, and not expired", s.Word(key(0)))
	}
	if !probe(Pass) || s.Word(key(0)).Health != Passing {
		t.Errorf("after a success: %+v", s.Word(key(0)))
	}
	for range 5 {
		probe(Void)
	}
	if !s.Word(key(0)).Expired {
		t.Error("it does not expire a second time")
	}
}

func TestAProberOutOfSocketsCallsNothingPassing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber()
		var broken atomic.Pointer[error] // nil: nothing is
		p.ask = func(context.Context, Key) (Outcome, string) {
			if err := broken.Load(); err != nil {
				return judge(*err, Spec{Mode: TCP})
			}
			return judge(nil, Spec{Mode: TCP})
		}
		p.Set("web/a", From("blue", key(1), key(2)))
		run(t, p)
		time.Sleep(10 * time.Second)
		for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
			synctest.Wait()
			p.Take()
			if p.Word(key(1)).Health != Passing {
				t.Fatalf("before %v: %+v", errno, p.Word(key(1)))
			}
			var err error = errno
			broken.Store(&err)
			time.Sleep(3*DefaultInterval + time.Millisecond)
			synctest.Wait()
			if w := p.Word(key(1)); w.Health != Unjudged || !w.Expired || w.Detail != errno.Error() {
				t.Errorf("three intervals after %v: %+v", errno, w)
			}
			if got := p.Take(); len(got) != 1 {
				t.Errorf("whose words changed: %v", got)
			}
			broken.Store(nil)
			time.Sleep(DefaultInterval)
		}
	})
}

// The same with a limit of file descriptors that is reached indeed.
func TestAProberWithoutFileDescriptorsCallsNothingPassing(t *testing.T) {
	l := listen(t) // the kernel accepts for it
	defer l.Close()
	p := newProber()
	k := keyOf(t, l.Addr().String(), Spec{Mode: TCP, Interval: 200 * time.Millisecond})
	p.Set("web/a", From("blue", k))
	run(t, p)
	await := func(what string, is func(Word) bool) {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for !is(p.Word(k)) {
			select {
			case <-p.Changed():
			case <-deadline:
				t.Fatalf("%s: %+v", what, p.Word(k))
			}
		}
	}
	await("at first", func(w Word) bool { return w.Health == Passing })
	lift := exhaustFiles(t)
	await("without file descriptors", func(w Word) bool {
		return w.Health == Unjudged && w.Expired && w.Detail == "too many open files"
	})
	lift()
	await("with file descriptors again", func(w Word) bool { return w.Health == Passing })
}

// exhaustFiles lowers this process's limit to what is in use, until lift.
func exhaustFiles(t *testing.T) (lift func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	low := syscall.Rlimit{Cur: 0, Max: was.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	lifted := false
	lift = func() {
		if lifted {
			return
		}
		lifted = true
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(lift)
	return lift
}
