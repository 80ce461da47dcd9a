package roster

import (
	"errors"
	"testing"
	"time"
)

// three is a world of three nodes, told, at rest.
func three(t *testing.T, names ...string) *world {
	t.Helper()
	w := newWorld(t, Config{Resolver: ByRecord})
	all := map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
	for _, name := range names {
		w.Hear(w.now, News{Changed: []Candidate{record(name, all[name])}, LastContact: w.now})
	}
	w.Looked(w.now, w.now, Full, 1, nil)
	return w
}

func TestWhatCameAndWentSinceTheLastObservationIsNoLoss(t *testing.T) {
	for _, of := range []struct {
		name   string
		start  []string
		then   func(*world)
		doubts bool
	}{
		{"half of them are lost", []string{"a", "b"}, func(w *world) { w.Remove(w.now, "b") }, false},
		{"more than half are lost", []string{"a", "b", "c"}, func(w *world) { w.Remove(w.now, "b"); w.Remove(w.now, "c") }, true},
		{"one is lost and comes back before another is", []string{"a", "b", "c"}, func(w *world) {
			w.Remove(w.now, "b")
			w.Upsert(w.now, record("b", "10.0.0.2"))
			w.Remove(w.now, "c")
		}, false},
		{"one that has just come goes before another does", []string{"a", "b"}, func(w *world) {
			w.Upsert(w.now, record("c", "10.0.0.3"))
			w.Remove(w.now, "c")
			w.Remove(w.now, "b")
		}, false},
		{"two that have changed are lost", []string{"a", "b", "c"}, func(w *world) {
			for name, address := range map[string]string{"b": "10.0.0.2", "c": "10.0.0.3"} {
				c := record(name, address)
				c.Zone = "other"
				w.Upsert(w.now, c)
			}
			w.Remove(w.now, "b")
			w.Remove(w.now, "c")
		}, true},
		{"all have changed", []string{"a", "b", "c"}, func(w *world) {
			for name, address := range map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"} {
				c := record(name, address)
				c.Zone = "other"
				w.Upsert(w.now, c)
			}
		}, false},
		{"one is lost after the loss of another was observed", []string{"a", "b", "c"}, func(w *world) {
			w.Remove(w.now, "b")
			w.pass(time.Minute)
			w.Hear(w.now, News{LastContact: w.now, Verified: 2})
			w.Looked(w.now, w.now, Light, 2, nil)
			w.Remove(w.now, "c")
		}, false},
		{"two are lost, of which one was observed to have come", []string{"a", "b"}, func(w *world) {
			w.Upsert(w.now, record("c", "10.0.0.3"))
			w.pass(time.Minute)
			w.Hear(w.now, News{LastContact: w.now, Verified: 2})
			w.Looked(w.now, w.now, Light, 2, nil)
			w.Remove(w.now, "c")
			w.Remove(w.now, "b")
		}, true},
	} {
		t.Run(of.name, func(t *testing.T) {
			w := three(t, of.start...)
			if of.then(w); w.inSeries() != of.doubts {
				t.Errorf("in doubt: %t, want %t", w.inSeries(), of.doubts)
			}
		})
	}
}

// Each question starts over what was seen before it, but one in a series that runs must not, or
// those who ask often would never let it count.
func TestASeriesGoesOnHoweverOftenItIsAskedFor(t *testing.T) {
	w := told(t, Config{})
	before := w.Status(w.now).Observation
	var began time.Time
	for range 60 {
		w.Doubt(w.now, 1)
		if a := w.Ask(w.now); a.Look != NoLook {
			began = w.now
		}
		w.pass(time.Second)
		if !began.IsZero() && w.now.Sub(began) >= 2*time.Second {
			w.Looked(w.now, began, Full, 9, nil)
			began = time.Time{}
		}
	}
	if n := w.Status(w.now).Observation - before; n < 8 {
		t.Errorf("%d observations in a minute of questions", n)
	}
}

func TestALookThatBeganBeforeAQuestionDoesNotCountForIt(t *testing.T) {
	w := told(t, Config{})
	w.pass(time.Minute)
	began := w.now
	if a := w.Ask(w.now); a.Look != Light {
		t.Fatalf("got %+v", a)
	}
	w.pass(time.Second)
	w.Doubt(w.now, 1)
	w.Hear(w.now, News{LastContact: w.now, Verified: 2})
	if w.Looked(w.now, began, Light, 2, nil); !w.inSeries() {
		t.Error("it answered a question that came after it began")
	}
}

func TestWhoAsksWhileAListingRunsGetsOneMore(t *testing.T) {
	w := ready(t, Config{})
	w.Doubt(w.now, 1)
	w.pass(5 * time.Second)
	w.Ask(w.now)
	w.Looked(w.now, w.now, Full, w.rv, nil)
	if a := w.Ask(w.now); !a.List {
		t.Fatalf("got %+v, want a listing", a)
	}
	began := w.now
	w.Doubt(w.now, 1)
	w.pass(time.Second)
	if w.Listed(w.now, began, one, nil, 0); !w.inSeries() {
		t.Error("the observation under way answered the question")
	}
}

func TestInASeriesTheNextLookWaitsForTheListing(t *testing.T) {
	w := ready(t, Config{})
	w.Doubt(w.now, 3)
	w.pass(5 * time.Second)
	if a := w.Ask(w.now); a.Look != Full || a.List {
		t.Fatalf("got %+v, want a full look and no listing before it", a)
	}
	w.Looked(w.now, w.now, Full, w.rv, nil)
	if a := w.Ask(w.now); a.Look != NoLook || !a.List {
		t.Fatalf("got %+v, want a listing", a)
	}
	w.pass(20 * time.Second)
	if a := w.Ask(w.now); a.Look != NoLook {
		t.Errorf("%+v while the listing runs", a)
	}
}

func TestALookDuringAListingServesTheNextObservation(t *testing.T) {
	w := ready(t, Config{})
	n := w.Status(w.now).Observation
	look := func() { w.Looked(w.now, w.now, Full, w.rv, nil) }
	w.pass(time.Minute)
	look()
	w.pass(time.Second)
	began := w.now
	w.pass(time.Second)
	look()
	w.pass(time.Second)
	if w.Listed(w.now, began, one, nil, 0); w.Status(w.now).Observation != n+1 {
		t.Fatalf("observation %d, want %d", w.Status(w.now).Observation, n+1)
	}
	w.pass(4 * time.Second) // two observations are 5 s apart
	if w.list(one); w.Status(w.now).Observation != n+2 {
		t.Errorf("observation %d, want %d: the second look was complete before this listing", w.Status(w.now).Observation, n+2)
	}
	w.pass(time.Second)
	look()
	w.Looked(w.now, w.now, Light, 0, errors.New("refused"))
	w.pass(4 * time.Second)
	if w.list(one); w.Status(w.now).Observation != n+2 {
		t.Errorf("observation %d, want %d: a look has failed since the last good one", w.Status(w.now).Observation, n+2)
	}
}

func TestALookThatIsReachedLateCountsOnce(t *testing.T) {
	w := told(t, Config{})
	w.pass(time.Minute)
	w.Looked(w.now, w.now, Light, 7, nil)
	for mark, want := range []uint64{1, 1, 1, 1, 1, 1, 1, 2, 2, 2} {
		w.Hear(w.now, News{LastContact: w.now, Verified: uint64(mark)})
		if got := w.Status(w.now).Observation; got != want {
			t.Errorf("caught up with %d: observation %d, want %d", mark, got, want)
		}
	}
}

// A store that was restored from a backup never reaches the mark of before; a full look makes it good.
func TestAFullLookMakesGoodWhatTheWatchNeverReaches(t *testing.T) {
	w := ready(t, Config{})
	w.Looked(w.now, w.now, Light, w.rv+1000, nil)
	w.pass(time.Minute)
	w.Looked(w.now, w.now, Full, w.rv, nil)
	w.pass(2 * time.Minute)
	if w.up(); w.Status(w.now).Membership.Sync != Synced {
		t.Errorf("got %+v", w.Status(w.now).Membership)
	}
}

// A full look is compared with what was told: it needs no mark to be known for fresh.
func TestAFullLookWithoutAMarkCounts(t *testing.T) {
	w := newWorld(t, Config{Resolver: ByNodeAddress})
	w.up(Candidate{Name: "a", UID: "1", State: Ready, InternalIPs: addrs("10.0.0.11")})
	w.Looked(w.now, w.now, Full, 0, nil)
	if s := w.Status(w.now); s.Observation != 1 || s.Membership.Sync != Synced {
		t.Errorf("after a full look: %+v", s)
	}
}

func TestBookmarksDoNotHurryLooksThatFail(t *testing.T) {
	w := ready(t, Config{})
	looks := 0
	for range 600 {
		w.up()
		if a := w.Ask(w.now); a.Look != NoLook {
			looks++
			w.Looked(w.now, w.now, a.Look, 0, errors.New("etcd is frozen"))
		}
		w.pass(time.Second)
	}
	if looks > 15 {
		t.Errorf("%d looks in ten minutes, each of which failed", looks)
	}
}

func TestSilenceIsTooLongAfterExactly150Seconds(t *testing.T) {
	for name, alter := range map[string]func(*world){
		"no look was answered": func(w *world) { w.looks.heardAt = t0.Add(time.Hour) },
		"the source is silent": func(w *world) { w.looks.okAt = t0.Add(time.Hour) },
		"it does not catch up": func(w *world) {
			w.looks.okAt, w.looks.heardAt = t0.Add(time.Hour), t0.Add(time.Hour)
			w.looks.target = target{mark: 1 << 40, began: t0, at: t0}
		},
	} {
		w := told(t, Config{})
		if alter(w); w.Status(t0.Add(silence)).Membership.Sync != Synced {
			t.Errorf("%s: not believed while it lasts", name)
		}
		if w.Status(t0.Add(silence+1)).Membership.Sync != Degraded {
			t.Errorf("%s: believed after it was too long", name)
		}
		behind := name != "no look was answered"
		if w.looks.behind(t0.Add(silence)) || w.looks.behind(t0.Add(silence+1)) != behind {
			t.Errorf("%s: it is behind at 150 s: %t, and then: %t", name, w.looks.behind(t0.Add(silence)), w.looks.behind(t0.Add(silence+1)))
		}
		if wake := w.nextTurn(t0.Add(silence - time.Second)); !wake.Equal(t0.Add(silence + 1)) {
			t.Errorf("%s: wakes %s after the silence began, want just after 150 s", name, wake.Sub(t0))
		}
	}
}

// Two looks at once, or two listings, would be answered in any order.
func TestWhatIsUnderWayIsNotAskedForAgainHoweverLongItTakes(t *testing.T) {
	w := ready(t, Config{})
	w.pass(time.Minute)
	if a := w.Ask(w.now); a.Look == NoLook || !a.List {
		t.Fatalf("after a minute: %+v", a)
	}
	for range 10 {
		w.pass(time.Minute)
		if a := w.Ask(w.now); a.Look != NoLook || a.List {
			t.Fatalf("asked for again: %+v", a)
		}
	}
}

func TestNothingIsSyncedBeforeItWasReadOnce(t *testing.T) {
	for resolver, what := range map[Resolver]string{ByCloud: "by the cloud", ByRecord: "by record"} {
		w := newWorld(t, Config{Resolver: resolver})
		if s := w.Status(w.now); s.Membership.Sync != Unsynced || s.Addresses.Sync != Unsynced || s.Publishable {
			t.Errorf("%s, before anything: %+v", what, s)
		}
		if w.Looked(w.now, w.now, Full, 1, nil); resolver == ByCloud && w.Status(w.now).Addresses.Sync != Unsynced {
			t.Errorf("%s, before a listing: %+v", what, w.Status(w.now))
		}
	}
}

// A node that flaps faster than the cloud is listed raises "none ready" again and again: each
// observation may begin once more for that, and has to complete all the same.
func TestObservationsCompleteWhileANodeFlapsFasterThanTheCloudIsListed(t *testing.T) {
	w := ready(t, Config{})
	before := w.Status(w.now).Observation
	var lookBegan, listBegan time.Time
	for second := range 300 {
		if second%2 == 0 {
			c := node("a", s1)
			if second%4 == 0 {
				c.State = NotReady
			}
			w.up(c)
		}
		if !lookBegan.IsZero() && w.now.Sub(lookBegan) >= time.Second {
			w.Looked(w.now, lookBegan, Full, w.rv, nil)
			lookBegan = time.Time{}
		}
		if !listBegan.IsZero() && w.now.Sub(listBegan) >= 4*time.Second {
			w.Listed(w.now, listBegan, one, nil, 0)
			listBegan = time.Time{}
		}
		a := w.Ask(w.now)
		if a.Look != NoLook {
			lookBegan = w.now
		}
		if a.List {
			listBegan = w.now
		}
		w.pass(time.Second)
	}
	if n := w.Status(w.now).Observation - before; n < 15 {
		t.Errorf("%d observations in five minutes, want one in 20 s at least", n)
	}
}
