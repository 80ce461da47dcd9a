package roster

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var one = listing(server(s1, "a", "10.0.0.11"))

// ready is a world with one node, told, at rest.
func ready(t *testing.T, cfg Config) *world {
	t.Helper()
	w := newWorld(t, cfg)
	w.up(node("a", s1))
	w.observed(one)
	if s := w.Status(w.now); !s.Publishable || s.Membership.Sync != Synced || s.Addresses.Sync != Synced {
		t.Fatalf("not at rest: %+v", s)
	}
	return w
}

func TestAnObservationIsALookAndThenAListingBegunAfterIt(t *testing.T) {
	w := newWorld(t, Config{})
	w.up(node("a", s1))
	a := w.Ask(w.now)
	if a.Look != Full || a.List {
		t.Fatalf("at start: %+v, want a full look and no listing before it", a)
	}
	if again := w.Ask(w.now); again.Look != NoLook || again.List {
		t.Fatalf("asked twice for what is under way: %+v", again)
	}
	began := w.now
	w.pass(time.Second)
	w.Looked(w.now, began, Full, w.rv, nil)
	if a = w.Ask(w.now); !a.List {
		t.Fatalf("after the look: %+v, want a listing", a)
	}
	early := w.now.Add(-time.Millisecond)
	w.Listed(w.now, early, one, nil, 0)
	if s := w.Status(w.now); s.Observation != 0 || s.Publishable {
		t.Fatalf("a listing that began before the look was complete counted: %+v", s)
	}
	w.pass(5 * time.Second)
	if a = w.Ask(w.now); !a.List {
		t.Fatalf("5s later: %+v, want a listing", a)
	}
	w.pass(time.Second)
	w.Listed(w.now, w.now.Add(-time.Second), one, nil, 0)
	if s := w.Status(w.now); s.Observation != 1 || !s.ObservedAt.Equal(w.now) || !s.Publishable {
		t.Fatalf("got %+v, want observation 1 now", s)
	}
}

func TestALightLookIsCompleteWhenTheWatchReachesIt(t *testing.T) {
	w := ready(t, Config{})
	n := w.Status(w.now).Observation
	w.pass(time.Minute)
	if a := w.Ask(w.now); a.Look != Light {
		t.Fatalf("a minute later: %+v, want a light look", a)
	}
	w.Looked(w.now, w.now, Light, w.rv+5, nil)
	w.list(one)
	if got := w.Status(w.now).Observation; got != n {
		t.Fatalf("observation %d before the watch reached the look", got)
	}
	w.Heard(w.now, w.rv+4)
	w.list(one)
	if got := w.Status(w.now).Observation; got != n {
		t.Fatalf("observation %d while the watch is behind the look", got)
	}
	w.Heard(w.now, w.rv+5)
	w.list(one)
	if got := w.Status(w.now).Observation; got != n+1 {
		t.Fatalf("observation %d, want %d", got, n+1)
	}
	w.list(one)
	if got := w.Status(w.now).Observation; got != n+1 {
		t.Fatalf("one look served two observations: %d", got)
	}
}

func TestAtRestThereIsOneLightLookAndOneListingAMinute(t *testing.T) {
	w := ready(t, Config{})
	start := w.now
	looks, lists := w.serve(one, 60)
	for _, l := range looks {
		if l != Light {
			t.Errorf("a %s look at rest", l)
		}
	}
	minutes := int(w.now.Sub(start) / time.Minute)
	if minutes < 5 || len(looks) > minutes+1 || len(lists) > minutes+1 || len(looks) < minutes-1 || len(lists) < minutes-1 {
		t.Errorf("%d looks and %d listings in %d minutes", len(looks), len(lists), minutes)
	}
}

func TestLightLooksGoOnWhileAnOlderOneIsNotReachedAndTheEarliestCounts(t *testing.T) {
	w := ready(t, Config{})
	for i := range 3 {
		w.pass(time.Minute)
		if a := w.Ask(w.now); a.Look != Light {
			t.Fatalf("minute %d: %+v", i, a)
		}
		w.Looked(w.now, w.now, Light, w.rv+10+uint64(i), nil)
		w.Heard(w.now, w.rv) // alive, and behind
	}
	if w.looks.target.mark != w.rv+10 {
		t.Errorf("target %d, want the earliest", w.looks.target.mark)
	}
	if s := w.Status(w.now.Add(29 * time.Second)).Membership; s.Sync != Synced {
		t.Errorf("149s after the look: %+v", s)
	}
	if s := w.Status(w.now.Add(31 * time.Second)).Membership; s.Sync != Degraded {
		t.Errorf("151s after the look: %+v", s)
	}
	w.Heard(w.now, w.rv+10)
	if s := w.Status(w.now).Membership; s.Sync != Synced {
		t.Errorf("after it was reached: %+v", s)
	}
}

func TestDoubtRepeatsTheObservation(t *testing.T) {
	two := listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.12"), server(s3, "c", "10.0.0.13"))
	notReady := node("a", s1)
	notReady.State = NotReady
	for _, tc := range []struct {
		name  string
		nodes []Candidate
		arise func(*world)
		want  int
	}{
		{"when empty", []Candidate{node("a", s1)}, func(w *world) { w.Remove(w.now, "a") }, 3},
		{"when none is READY", []Candidate{node("a", s1)}, func(w *world) { w.up(notReady) }, 3},
		{"when more than half are lost", []Candidate{node("a", s1), node("b", s2), node("c", s3)}, func(w *world) {
			w.Remove(w.now, "b")
			w.Remove(w.now, "c")
		}, 3},
		{"not when fewer are lost", []Candidate{node("a", s1), node("b", s2), node("c", s3)}, func(w *world) { w.Remove(w.now, "c") }, 0},
		{"when asked", []Candidate{node("a", s1)}, func(w *world) { w.Doubt(w.now, 2) }, 2},
		{"at most ten times", []Candidate{node("a", s1)}, func(w *world) { w.Doubt(w.now, 1000) }, 10},
		{"once when asked for none", []Candidate{node("a", s1)}, func(w *world) { w.Doubt(w.now, 0) }, 1},
		{"as often as the larger of two who ask", []Candidate{node("a", s1)}, func(w *world) {
			w.Doubt(w.now, 4)
			w.Doubt(w.now, 2)
		}, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.SetDoubtDepth(3)
			w.up(tc.nodes...)
			w.observed(two)
			before, start := w.Status(w.now).Observation, w.now
			tc.arise(w)
			var seen []time.Duration
			for w.now.Sub(start) < 58*time.Second {
				n := w.Status(w.now).Observation
				a := w.wake()
				if a.Look == Full {
					w.Looked(w.now, w.now, Full, w.rv, nil)
				}
				if a.List {
					w.Listed(w.now, w.now, two, nil, 0)
				}
				if w.Status(w.now).Observation > n {
					seen = append(seen, w.now.Sub(start))
				}
			}
			if got := int(w.Status(w.now).Observation - before); got != tc.want {
				t.Fatalf("%d observations at %v, want %d", got, seen, tc.want)
			}
			for i := 1; i < len(seen); i++ {
				if seen[i]-seen[i-1] < 5*time.Second {
					t.Errorf("observations %s apart: %v", seen[i]-seen[i-1], seen)
				}
			}
		})
	}
}

func TestADoubtThatLastsIsNotRepeatedForEver(t *testing.T) {
	w := ready(t, Config{})
	w.SetDoubtDepth(3)
	w.Remove(w.now, "a")
	looks, _ := w.serve(one, 100)
	full := 0
	for _, l := range looks {
		if l == Full {
			full++
		}
	}
	if full != 3 {
		t.Errorf("%d full looks for a series of 3", full)
	}
}

func TestALookThatBeganBeforeADoubtAroseDoesNotCountForIt(t *testing.T) {
	w := ready(t, Config{})
	n := w.Status(w.now).Observation
	w.Looked(w.now, w.now, Full, w.rv, nil) // complete, waits for a listing
	began := w.now
	w.pass(time.Second)
	w.Remove(w.now, "a")
	w.list(one)
	w.Looked(w.now, began, Full, w.rv, nil)
	w.list(one)
	if got := w.Status(w.now).Observation; got != n {
		t.Errorf("observation %d of looks that began before the list was empty", got)
	}
}

func TestFirstWord(t *testing.T) {
	t.Run("waits until every READY node has an address", func(t *testing.T) {
		w := newWorld(t, Config{})
		w.up(node("a", s1), node("b", s2))
		w.observed(one)
		if s := w.Status(w.now); s.Publishable || w.Take() != nil {
			t.Fatalf("told without b: %+v", s)
		}
		w.list(listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.12")))
		if s := w.Status(w.now); !s.Publishable || len(w.Take()) != 2 {
			t.Fatalf("not told: %+v", s)
		}
	})
	t.Run("does not wait for a node that is not READY", func(t *testing.T) {
		w := newWorld(t, Config{})
		b := node("b", s2)
		b.State = NotReady
		w.up(node("a", s1), b)
		w.observed(one)
		if !w.Status(w.now).Publishable {
			t.Fatal("not told")
		}
	})
	t.Run("is given when two listings a poll interval apart agree", func(t *testing.T) {
		w := newWorld(t, Config{})
		w.up(node("a", s1), node("b", s2))
		w.observed(one)
		start := w.now
		for !w.Status(w.now).Publishable && w.now.Sub(start) < time.Hour {
			w.serve(one, 1)
		}
		if d := w.now.Sub(start); d < 59*time.Second || d > 130*time.Second {
			t.Errorf("told after %s", d)
		}
	})
	t.Run("is withheld while no eligible node has an address", func(t *testing.T) {
		w := newWorld(t, Config{})
		w.up(node("a", s1))
		w.observed(listing())
		w.serve(listing(), 50)
		s := w.Status(w.now)
		if s.Publishable || s.Addresses.Sync != Unsynced || s.Observation == 0 {
			t.Errorf("got %+v", s)
		}
		w.list(one)
		if s = w.Status(w.now); !s.Publishable || s.Addresses.Sync != Synced {
			t.Errorf("got %+v", s)
		}
	})
	t.Run("is withdrawn when none of those that are there now has one", func(t *testing.T) {
		w := ready(t, Config{})
		w.Take()
		w.Remove(w.now, "a")
		w.up(node("b", s2))
		if s := w.Status(w.now); s.Publishable || w.Take() != nil {
			t.Fatalf("got %+v", s)
		}
		w.list(listing(server(s2, "b", "10.0.0.12")))
		if got := w.Take(); len(got) != 2 || got[0].Node != nil || got[1].Node == nil {
			t.Fatalf("got %+v", got)
		}
	})
	t.Run("is an empty one when there is no worker", func(t *testing.T) {
		w := newWorld(t, Config{})
		w.up(Candidate{Name: "cp", UID: "1", Excluded: ControlPlane, State: Ready})
		w.observed(one)
		if s := w.Status(w.now); !s.Publishable || s.Addresses.Sync != Synced {
			t.Errorf("got %+v", s)
		}
	})
}

func TestListingsForANodeThatCannotBeResolvedBackOff(t *testing.T) {
	w := ready(t, Config{})
	w.pass(20 * time.Second)
	start := w.now
	w.up(node("b", s2))
	var at []time.Duration
	for range 100 {
		a := w.wake()
		if a.Look != NoLook {
			w.Looked(w.now, w.now, a.Look, w.rv, nil)
		}
		if a.List {
			at = append(at, w.now.Sub(start))
			w.Listed(w.now, w.now, one, nil, 0)
		}
		w.Heard(w.now, w.rv)
		if len(at) == 7 {
			break
		}
	}
	s := time.Second
	if d := cmp.Diff([]time.Duration{0, 5 * s, 15 * s, 35 * s, 75 * s, 135 * s, 195 * s}, at); d != "" {
		t.Error(d)
	}
}

func TestManyNodesAtOnceShareAListing(t *testing.T) {
	w := ready(t, Config{})
	w.pass(20 * time.Second)
	w.up(node("b", s2))
	if a := w.Ask(w.now); !a.List {
		t.Fatalf("got %+v", a)
	}
	began := w.now
	w.pass(time.Second)
	w.up(node("c", s3)) // while the listing is under way
	w.Listed(w.now, began, one, nil, 0)
	if o := w.omits("c"); o.Reason != NotResolvedYet {
		t.Errorf("c: %+v", o)
	}
	if a := w.Ask(w.now); a.List || a.Wake.Sub(began) > 5*time.Second {
		t.Errorf("right after a listing: %+v", a)
	}
	if a := w.Ask(began.Add(5 * time.Second)); !a.List {
		t.Errorf("5s after a listing: %+v", a)
	}
}

func TestRetryAfterIsHonouredInFull(t *testing.T) {
	w := ready(t, Config{})
	w.Listed(w.now, w.now, Listing{}, errors.New("429"), 10*time.Minute)
	until := w.now.Add(10 * time.Minute)
	w.up(node("b", s2))
	w.Doubt(w.now, 10)
	for w.now.Before(until) {
		a := w.wake()
		if a.List && w.now.Before(until) {
			t.Fatalf("listed %s before Retry-After was over", until.Sub(w.now))
		}
		if a.List {
			return
		}
		if a.Look != NoLook {
			w.Looked(w.now, w.now, a.Look, w.rv, nil)
		}
	}
	t.Fatal("never listed again")
}

func TestFailedListingsBackOffToThePollInterval(t *testing.T) {
	w := ready(t, Config{})
	var at []time.Duration
	var before time.Time
	for len(at) < 7 {
		a := w.wake()
		if a.List {
			if !before.IsZero() {
				at = append(at, w.now.Sub(before)/time.Second)
			}
			before = w.now
			w.Listed(w.now, w.now, Listing{}, errors.New("502 <html>"), 0)
		}
		if a.Look != NoLook {
			w.Looked(w.now, w.now, a.Look, w.rv, nil)
		}
	}
	if d := cmp.Diff([]time.Duration{5, 10, 20, 40, 60, 60, 60}, at); d != "" {
		t.Error(d)
	}
	w.sees("a 10.0.0.11")
}
