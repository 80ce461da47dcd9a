package roster

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

var one = listing(server(s1, "a", "10.0.0.11"))

// ready is a world with one node, told, at rest.
func ready(t *testing.T, cfg Config) *world {
	t.Helper()
	w := newWorld(t, cfg)
	w.up(node("a", s1))
	w.observed(one)
	if s := w.Status(w.now); !s.Publishable || s.Membership.Sync != source.Synced || s.Addresses.Sync != source.Synced {
		t.Fatalf("not at rest: %+v", s)
	}
	return w
}

func TestAnObservationIsALookAndThenAListingBegunAfterIt(t *testing.T) {
	w := newWorld(t, Config{})
	w.up(node("a", s1))
	a := w.NextActions(w.now)
	if a.Verify != source.FullVerification || a.List {
		t.Fatalf("at start: %+v, want a full look and no listing before it", a)
	}
	if again := w.NextActions(w.now); again.Verify != source.NoVerification || again.List {
		t.Fatalf("asked twice for what is under way: %+v", again)
	}
	began := w.now
	w.pass(time.Second)
	w.verified(w.now, began, source.FullVerification, w.rv, nil)
	if a = w.NextActions(w.now); !a.List {
		t.Fatalf("after the look: %+v, want a listing", a)
	}
	early := w.now.Add(-time.Millisecond)
	w.listed(w.now, early, one, nil, 0)
	if s := w.Status(w.now); s.Observation != 0 || s.Publishable {
		t.Fatalf("a listing that began before the look was complete counted: %+v", s)
	}
	w.pass(5 * time.Second)
	if a = w.NextActions(w.now); !a.List {
		t.Fatalf("5s later: %+v, want a listing", a)
	}
	w.pass(time.Second)
	w.listed(w.now, w.now.Add(-time.Second), one, nil, 0)
	if s := w.Status(w.now); s.Observation != 1 || !s.ObservedAt.Equal(w.now) || !s.Publishable {
		t.Fatalf("got %+v, want observation 1 now", s)
	}
}

func TestALightLookIsCompleteWhenTheWatchReachesIt(t *testing.T) {
	w := ready(t, Config{})
	n := w.Status(w.now).Observation
	w.pass(time.Minute)
	if a := w.NextActions(w.now); a.Verify != source.LightVerification {
		t.Fatalf("a minute later: %+v, want a light look", a)
	}
	w.verified(w.now, w.now, source.LightVerification, w.rv+5, nil)
	w.list(one)
	if got := w.Status(w.now).Observation; got != n {
		t.Fatalf("observation %d before the watch reached the look", got)
	}
	w.contact(w.now, w.rv+4)
	w.list(one)
	if got := w.Status(w.now).Observation; got != n {
		t.Fatalf("observation %d while the watch is behind the look", got)
	}
	w.contact(w.now, w.rv+5)
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
		if l != source.LightVerification {
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
		if a := w.NextActions(w.now); a.Verify != source.LightVerification {
			t.Fatalf("minute %d: %+v", i, a)
		}
		w.verified(w.now, w.now, source.LightVerification, w.rv+10+uint64(i), nil)
		w.contact(w.now, w.rv) // alive, and behind
	}
	if s := w.Status(w.now.Add(29 * time.Second)).Membership; s.Sync != source.Synced {
		t.Errorf("149s after the look: %+v", s)
	}
	if s := w.Status(w.now.Add(31 * time.Second)).Membership; s.Sync != source.Degraded {
		t.Errorf("151s after the look: %+v", s)
	}
	w.contact(w.now, w.rv+10)
	if s := w.Status(w.now).Membership; s.Sync != source.Synced {
		t.Errorf("after it was reached: %+v", s)
	}
}

func TestAnomalyRequestsConfirmations(t *testing.T) {
	two := listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.12"), server(s3, "c", "10.0.0.13"))
	notReady := node("a", s1)
	notReady.State = source.NotReady
	for _, tc := range []struct {
		name  string
		nodes []source.Candidate
		arise func(*world)
		want  int
	}{
		{"when empty", []source.Candidate{node("a", s1)}, func(w *world) { w.remove(w.now, "a") }, 3},
		{"when none is READY", []source.Candidate{node("a", s1)}, func(w *world) { w.up(notReady) }, 3},
		{"when more than half are lost", []source.Candidate{node("a", s1), node("b", s2), node("c", s3)}, func(w *world) {
			w.remove(w.now, "b")
			w.remove(w.now, "c")
		}, 3},
		{"not when fewer are lost", []source.Candidate{node("a", s1), node("b", s2), node("c", s3)}, func(w *world) { w.remove(w.now, "c") }, 0},
		{"when asked", []source.Candidate{node("a", s1)}, func(w *world) { w.RequestObservations(w.now, 2) }, 2},
		{"at most ten times", []source.Candidate{node("a", s1)}, func(w *world) { w.RequestObservations(w.now, 1000) }, 10},
		{"once when asked for none", []source.Candidate{node("a", s1)}, func(w *world) { w.RequestObservations(w.now, 0) }, 1},
		{"as often as the larger of two who ask", []source.Candidate{node("a", s1)}, func(w *world) {
			w.RequestObservations(w.now, 4)
			w.RequestObservations(w.now, 2)
		}, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.SetConfirmations(3)
			w.up(tc.nodes...)
			w.observed(two)
			before, start := w.Status(w.now).Observation, w.now
			tc.arise(w)
			var seen []time.Duration
			for w.now.Sub(start) < 58*time.Second {
				n := w.Status(w.now).Observation
				a := w.wake()
				if a.Verify == source.FullVerification {
					w.verified(w.now, w.now, source.FullVerification, w.rv, nil)
				}
				if a.List {
					w.listed(w.now, w.now, two, nil, 0)
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

func TestLastingAnomalyIsConfirmedOnce(t *testing.T) {
	w := ready(t, Config{})
	w.SetConfirmations(3)
	w.remove(w.now, "a")
	looks, _ := w.serve(one, 100)
	full := 0
	for _, l := range looks {
		if l == source.FullVerification {
			full++
		}
	}
	if full != 3 {
		t.Errorf("%d full looks for a series of 3", full)
	}
}

func TestVerificationFromBeforeAnAnomalyDoesNotConfirmIt(t *testing.T) {
	w := ready(t, Config{})
	n := w.Status(w.now).Observation
	w.verified(w.now, w.now, source.FullVerification, w.rv, nil) // complete, waits for a listing
	began := w.now
	w.pass(time.Second)
	w.remove(w.now, "a")
	w.list(one)
	w.verified(w.now, began, source.FullVerification, w.rv, nil)
	w.list(one)
	if got := w.Status(w.now).Observation; got != n {
		t.Errorf("observation %d of looks that began before the list was empty", got)
	}
}

func TestFirstPublication(t *testing.T) {
	t.Run("waits until every READY node has an address", func(t *testing.T) {
		w := newWorld(t, Config{})
		w.up(node("a", s1), node("b", s2))
		w.observed(one)
		if s := w.Status(w.now); s.Publishable || w.take() != nil {
			t.Fatalf("told without b: %+v", s)
		}
		w.list(listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.12")))
		if s := w.Status(w.now); !s.Publishable || len(w.take()) != 2 {
			t.Fatalf("not told: %+v", s)
		}
	})
	t.Run("does not wait for a node that is not READY", func(t *testing.T) {
		w := newWorld(t, Config{})
		b := node("b", s2)
		b.State = source.NotReady
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
		if s.Publishable || s.Addresses.Sync != source.Unsynced || s.Observation == 0 {
			t.Errorf("got %+v", s)
		}
		w.list(one)
		if s = w.Status(w.now); !s.Publishable || s.Addresses.Sync != source.Synced {
			t.Errorf("got %+v", s)
		}
	})
	t.Run("is withdrawn when none of those that are there now has one", func(t *testing.T) {
		w := ready(t, Config{})
		w.take()
		w.applySource(w.now, source.Update{Changed: []source.Candidate{node("b", s2)}, Removed: []string{"a"}})
		if s := w.Status(w.now); s.Publishable || w.take() != nil {
			t.Fatalf("got %+v", s)
		}
		w.list(listing(server(s2, "b", "10.0.0.12")))
		if got := w.take(); len(got) != 2 || got[0].Node != nil || got[1].Node == nil {
			t.Fatalf("got %+v", got)
		}
	})
	t.Run("is an empty one when there is no worker", func(t *testing.T) {
		w := newWorld(t, Config{})
		w.up(source.Candidate{Name: "cp", UID: "1", Excluded: source.ControlPlane, State: source.Ready})
		w.observed(one)
		if s := w.Status(w.now); !s.Publishable || s.Addresses.Sync != source.Synced {
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
		if a.Verify != source.NoVerification {
			w.verified(w.now, w.now, a.Verify, w.rv, nil)
		}
		if a.List {
			at = append(at, w.now.Sub(start))
			w.listed(w.now, w.now, one, nil, 0)
		}
		w.contact(w.now, w.rv)
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
	if a := w.NextActions(w.now); !a.List {
		t.Fatalf("got %+v", a)
	}
	began := w.now
	w.pass(time.Second)
	w.up(node("c", s3)) // while the listing is under way
	w.listed(w.now, began, one, nil, 0)
	if o := w.omits("c"); o.Reason != source.NotResolvedYet {
		t.Errorf("c: %+v", o)
	}
	if a := w.NextActions(w.now); a.List || a.Wake.Sub(began) > 5*time.Second {
		t.Errorf("right after a listing: %+v", a)
	}
	if a := w.NextActions(began.Add(5 * time.Second)); !a.List {
		t.Errorf("5s after a listing: %+v", a)
	}
}

func TestRetryAfterIsHonouredInFull(t *testing.T) {
	w := ready(t, Config{})
	w.listed(w.now, w.now, source.Listing{}, errors.New("429"), 10*time.Minute)
	until := w.now.Add(10 * time.Minute)
	w.up(node("b", s2))
	w.RequestObservations(w.now, 10)
	for w.now.Before(until) {
		a := w.wake()
		if a.List && w.now.Before(until) {
			t.Fatalf("listed %s before Retry-After was over", until.Sub(w.now))
		}
		if a.List {
			return
		}
		if a.Verify != source.NoVerification {
			w.verified(w.now, w.now, a.Verify, w.rv, nil)
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
			w.listed(w.now, w.now, source.Listing{}, errors.New("502 <html>"), 0)
		}
		if a.Verify != source.NoVerification {
			w.verified(w.now, w.now, a.Verify, w.rv, nil)
		}
	}
	if d := cmp.Diff([]time.Duration{5, 10, 20, 40, 60, 60, 60}, at); d != "" {
		t.Error(d)
	}
	w.sees("a 10.0.0.11")
}
