package probe

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestStatusExpiresWithoutConclusiveProbe(t *testing.T) {
	const never = 0
	for _, row := range []struct {
		name    string
		timeout time.Duration
		before  string // results of the first probes: P, F
		then    Result // of all later probes
		takes   time.Duration
		want    float64 // seconds from the last conclusive probe until it is pending
	}{
		{"passing, then inconclusive", 0, "P", Inconclusive, 0, 6},
		{"failing, then inconclusive", 0, "FFF", Inconclusive, 0, 6},
		{"always inconclusive", 0, "", Inconclusive, 0, 6},
		{"contradicted, then inconclusive", 0, "PF", Inconclusive, 0, 6},
		{"while probes pass", 0, "P", Pass, 0, never},
		{"while probes fail", 0, "FFF", Fail, 0, never},
		{"passing probes longer than three intervals", 20 * time.Second, "P", Pass, 15 * time.Second, never},
		{"inconclusive probes longer than three intervals", 20 * time.Second, "P", Inconclusive, 9 * time.Second, 26},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := testKey(0)
			k.Spec.Timeout = row.timeout
			k = k.Canonical()
			s, now := NewSchedule(100), startTime
			addKey(s, k, Share{}, now)
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
				s.Finish(a, map[rune]Result{'P': Pass, 'F': Fail}[o], "why", now)
				concluded = now
			}
			type runningProbe struct {
				a      Attempt
				endsAt time.Time
			}
			var running []runningProbe
			var expired time.Time
			for until := now.Add(40 * time.Second); now.Before(until) && expired.IsZero(); {
				for _, key := range s.Expire(now) {
					if key == k {
						expired = now
					}
				}
				for {
					a, due := s.Start(now, 0)
					if !due {
						break
					}
					running = append(running, runningProbe{a, now.Add(row.takes)})
				}
				wake, some := s.Wake()
				if len(running) > 0 && (!some || !running[0].endsAt.After(wake)) {
					now = running[0].endsAt
					s.Finish(running[0].a, row.then, "too many open files", now)
					running = running[1:]
					if s.Status(k).Expired && expired.IsZero() {
						expired = now
					}
					continue
				}
				now = wake
			}
			switch {
			case row.want == never && !expired.IsZero():
				t.Errorf("expired after %v", expired.Sub(concluded))
			case row.want != never && expired.Sub(concluded).Seconds() != row.want:
				t.Errorf("expired after %v, want %v s: %+v", expired.Sub(concluded), row.want, s.Status(k))
			case row.want != never && (s.Status(k).Health != Pending || s.Status(k).Detail != "too many open files"):
				t.Errorf("got %+v, want pending with the reason", s.Status(k))
			}
		})
	}
}

func TestConclusiveProbeEndsExpiry(t *testing.T) {
	s, now := NewSchedule(1), startTime
	addKey(s, testKey(0), Share{}, now)
	conclude := func(o Result) bool {
		for {
			now, _ = s.Wake()
			s.Expire(now)
			if a, due := s.Start(now, 0); due {
				return s.Finish(a, o, "why", now)
			}
		}
	}
	for _, o := range []Result{Pass, Inconclusive, Inconclusive, Inconclusive, Inconclusive} {
		conclude(o)
	}
	if w := s.Status(
		testKey(0),
	); !w.Expired || !w.LastPassed.Equal(startTime) || s.healthCounts[Pending] != 1 ||
		s.healthCounts[Passing] != 0 {
		t.Fatalf("after four inconclusive probes: %+v, %v", w, s.healthCounts)
	}
	if !conclude(Fail) || s.Status(testKey(0)).Expired || s.Status(testKey(0)).Health != Pending {
		t.Errorf("after a failure: %+v, want pending and not expired", s.Status(testKey(0)))
	}
	if !conclude(Pass) || s.Status(testKey(0)).Health != Passing {
		t.Errorf("after a success: %+v", s.Status(testKey(0)))
	}
	for range 5 {
		conclude(Inconclusive)
	}
	if !s.Status(testKey(0)).Expired {
		t.Error("want expired a second time")
	}
}

func TestStatusExpiresWithoutSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber()
		var broken atomic.Pointer[error] // nil: probes pass
		p.attempt = func(context.Context, Key) (Result, string) {
			if err := broken.Load(); err != nil {
				return Inconclusive, (*err).Error()
			}
			return Pass, ""
		}
		p.Set("web/a", requestsFor("blue", testKey(1), testKey(2)))
		runProber(t, p)
		time.Sleep(10 * time.Second)
		for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
			synctest.Wait()
			p.TakeChanged()
			if p.statusOf(testKey(1)).Health != Passing {
				t.Fatalf("before %v: %+v", errno, p.statusOf(testKey(1)))
			}
			var err error = errno
			broken.Store(&err)
			time.Sleep(3*DefaultInterval + time.Millisecond)
			synctest.Wait()
			if w := p.statusOf(testKey(1)); w.Health != Pending || !w.Expired || w.Detail != errno.Error() {
				t.Errorf("three intervals after %v: %+v", errno, w)
			}
			if got := p.TakeChanged(); len(got) != 1 {
				t.Errorf("changed targets: %v", got)
			}
			broken.Store(nil)
			time.Sleep(DefaultInterval)
		}
	})
}

// The same with a real limit of file descriptors.
func TestStatusExpiresWithoutFileDescriptors(t *testing.T) {
	l := listenTCP(t) // the kernel accepts the connections
	defer l.Close()
	p := newProber()
	k := keyFor(t, l.Addr().String(), Spec{Mode: TCP, Interval: 200 * time.Millisecond})
	p.Set("web/a", requestsFor("blue", k))
	runProber(t, p)
	await := func(what string, is func(Status) bool) {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for !is(p.statusOf(k)) {
			select {
			case <-p.Changed():
			case <-deadline:
				t.Fatalf("%s: %+v", what, p.statusOf(k))
			}
		}
	}
	await("at start", func(w Status) bool { return w.Health == Passing })
	lift := exhaustFiles(t)
	await("without file descriptors", func(w Status) bool {
		return w.Health == Pending && w.Expired && w.Detail == "too many open files"
	})
	lift()
	await("with file descriptors again", func(w Status) bool { return w.Health == Passing })
}

// exhaustFiles makes opening files fail until lift is called.
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
