package roster

import (
	"errors"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/resolve"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// three is a world of three nodes, told, at rest.
func three(t *testing.T, names ...string) *world {
	t.Helper()
	w := newWorld(t, Config{Method: resolve.ByRecord})
	all := map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
	for _, name := range names {
		w.applySource(w.now, source.Update{Changed: []source.Candidate{record(name, all[name])}, LastContact: w.now})
	}
	w.verified(w.now, w.now, source.FullVerification, 1, nil)
	return w
}

func TestWhatCameAndWentSinceTheLastObservationIsNoLoss(t *testing.T) {
	for _, of := range []struct {
		name     string
		start    []string
		then     func(*world)
		confirms bool
	}{
		{"half of them are lost", []string{"a", "b"}, func(w *world) { w.remove(w.now, "b") }, false},
		{"more than half are lost", []string{"a", "b", "c"}, func(w *world) { w.remove(w.now, "b"); w.remove(w.now, "c") }, true},
		{"one is lost and comes back before another is", []string{"a", "b", "c"}, func(w *world) {
			w.remove(w.now, "b")
			w.upsert(w.now, record("b", "10.0.0.2"))
			w.remove(w.now, "c")
		}, false},
		{"one that has just come goes before another does", []string{"a", "b"}, func(w *world) {
			w.upsert(w.now, record("c", "10.0.0.3"))
			w.remove(w.now, "c")
			w.remove(w.now, "b")
		}, false},
		{"two that have changed are lost", []string{"a", "b", "c"}, func(w *world) {
			for name, address := range map[string]string{"b": "10.0.0.2", "c": "10.0.0.3"} {
				c := record(name, address)
				c.Zone = "other"
				w.upsert(w.now, c)
			}
			w.remove(w.now, "b")
			w.remove(w.now, "c")
		}, true},
		{"all have changed", []string{"a", "b", "c"}, func(w *world) {
			for name, address := range map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"} {
				c := record(name, address)
				c.Zone = "other"
				w.upsert(w.now, c)
			}
		}, false},
		{"one is lost after the loss of another was observed", []string{"a", "b", "c"}, func(w *world) {
			w.remove(w.now, "b")
			w.pass(time.Minute)
			w.applySource(w.now, source.Update{LastContact: w.now, Verified: 2})
			w.verified(w.now, w.now, source.LightVerification, 2, nil)
			w.remove(w.now, "c")
		}, false},
		{"two are lost, of which one was observed to have come", []string{"a", "b"}, func(w *world) {
			w.upsert(w.now, record("c", "10.0.0.3"))
			w.pass(time.Minute)
			w.applySource(w.now, source.Update{LastContact: w.now, Verified: 2})
			w.verified(w.now, w.now, source.LightVerification, 2, nil)
			w.remove(w.now, "c")
			w.remove(w.now, "b")
		}, true},
	} {
		t.Run(of.name, func(t *testing.T) {
			w := three(t, of.start...)
			if of.then(w); w.isConfirming() != of.confirms {
				t.Errorf("in doubt: %t, want %t", w.isConfirming(), of.confirms)
			}
		})
	}
}

// Each question starts over what was seen before it, but one in a series that runs must not, or
// those who ask often would never let it count.
func TestASeriesGoesOnHoweverOftenItIsAskedFor(t *testing.T) {
	w := newPublishedRecord(t, Config{})
	before := w.Status(w.now).Observation
	var began time.Time
	for range 60 {
		w.RequestObservations(w.now, 1)
		if a := w.NextActions(w.now); a.Verify != source.NoVerification {
			began = w.now
		}
		w.pass(time.Second)
		if !began.IsZero() && w.now.Sub(began) >= 2*time.Second {
			w.verified(w.now, began, source.FullVerification, 9, nil)
			began = time.Time{}
		}
	}
	if n := w.Status(w.now).Observation - before; n < 8 {
		t.Errorf("%d observations in a minute of questions", n)
	}
}

func TestALookThatBeganBeforeAQuestionDoesNotCountForIt(t *testing.T) {
	w := newPublishedRecord(t, Config{})
	w.pass(time.Minute)
	began := w.now
	if a := w.NextActions(w.now); a.Verify != source.LightVerification {
		t.Fatalf("got %+v", a)
	}
	w.pass(time.Second)
	w.RequestObservations(w.now, 1)
	w.applySource(w.now, source.Update{LastContact: w.now, Verified: 2})
	if w.verified(w.now, began, source.LightVerification, 2, nil); !w.isConfirming() {
		t.Error("it answered a question that came after it began")
	}
}

func TestWhoAsksWhileAListingRunsGetsOneMore(t *testing.T) {
	w := ready(t, Config{})
	w.RequestObservations(w.now, 1)
	w.pass(5 * time.Second)
	w.NextActions(w.now)
	w.verified(w.now, w.now, source.FullVerification, w.rv, nil)
	if a := w.NextActions(w.now); !a.List {
		t.Fatalf("got %+v, want a listing", a)
	}
	began := w.now
	w.RequestObservations(w.now, 1)
	w.pass(time.Second)
	if w.listed(w.now, began, one, nil, 0); !w.isConfirming() {
		t.Error("the observation under way answered the question")
	}
}

func TestInASeriesTheNextLookWaitsForTheListing(t *testing.T) {
	w := ready(t, Config{})
	w.RequestObservations(w.now, 3)
	w.pass(5 * time.Second)
	if a := w.NextActions(w.now); a.Verify != source.FullVerification || a.List {
		t.Fatalf("got %+v, want a full look and no listing before it", a)
	}
	w.verified(w.now, w.now, source.FullVerification, w.rv, nil)
	if a := w.NextActions(w.now); a.Verify != source.NoVerification || !a.List {
		t.Fatalf("got %+v, want a listing", a)
	}
	w.pass(20 * time.Second)
	if a := w.NextActions(w.now); a.Verify != source.NoVerification {
		t.Errorf("%+v while the listing runs", a)
	}
}

func TestALookDuringAListingServesTheNextObservation(t *testing.T) {
	w := ready(t, Config{})
	n := w.Status(w.now).Observation
	look := func() { w.verified(w.now, w.now, source.FullVerification, w.rv, nil) }
	w.pass(time.Minute)
	look()
	w.pass(time.Second)
	began := w.now
	w.pass(time.Second)
	look()
	w.pass(time.Second)
	if w.listed(w.now, began, one, nil, 0); w.Status(w.now).Observation != n+1 {
		t.Fatalf("observation %d, want %d", w.Status(w.now).Observation, n+1)
	}
	w.pass(4 * time.Second) // two observations are 5 s apart
	if w.list(one); w.Status(w.now).Observation != n+2 {
		t.Errorf("observation %d, want %d: the second look was complete before this listing", w.Status(w.now).Observation, n+2)
	}
	w.pass(time.Second)
	look()
	w.verified(w.now, w.now, source.LightVerification, 0, errors.New("refused"))
	w.pass(4 * time.Second)
	if w.list(one); w.Status(w.now).Observation != n+2 {
		t.Errorf("observation %d, want %d: a look has failed since the last good one", w.Status(w.now).Observation, n+2)
	}
}

func TestALookThatIsReachedLateCountsOnce(t *testing.T) {
	w := newPublishedRecord(t, Config{})
	w.pass(time.Minute)
	w.verified(w.now, w.now, source.LightVerification, 7, nil)
	for mark, want := range []uint64{1, 1, 1, 1, 1, 1, 1, 2, 2, 2} {
		w.applySource(w.now, source.Update{LastContact: w.now, Verified: uint64(mark)})
		if got := w.Status(w.now).Observation; got != want {
			t.Errorf("caught up with %d: observation %d, want %d", mark, got, want)
		}
	}
}

// A store that was restored from a backup never reaches the mark of before; a full look makes it good.
func TestAFullLookMakesGoodWhatTheWatchNeverReaches(t *testing.T) {
	w := ready(t, Config{})
	w.verified(w.now, w.now, source.LightVerification, w.rv+1000, nil)
	w.pass(time.Minute)
	w.verified(w.now, w.now, source.FullVerification, w.rv, nil)
	w.pass(2 * time.Minute)
	if w.up(); w.Status(w.now).Membership.Sync != source.Synced {
		t.Errorf("got %+v", w.Status(w.now).Membership)
	}
}

// A full look is compared with what was told: it needs no mark to be known for fresh.
func TestAFullLookWithoutAMarkCounts(t *testing.T) {
	w := newWorld(t, Config{Method: resolve.ByNodeAddress})
	w.up(source.Candidate{Name: "a", UID: "1", State: source.Ready, InternalIPs: addrs("10.0.0.11")})
	w.verified(w.now, w.now, source.FullVerification, 0, nil)
	if s := w.Status(w.now); s.Observation != 1 || s.Membership.Sync != source.Synced {
		t.Errorf("after a full look: %+v", s)
	}
}

func TestBookmarksDoNotHurryLooksThatFail(t *testing.T) {
	w := ready(t, Config{})
	looks := 0
	for range 600 {
		w.up()
		if a := w.NextActions(w.now); a.Verify != source.NoVerification {
			looks++
			w.verified(w.now, w.now, a.Verify, 0, errors.New("etcd is frozen"))
		}
		w.pass(time.Second)
	}
	if looks > 15 {
		t.Errorf("%d looks in ten minutes, each of which failed", looks)
	}
}

// Two looks at once, or two listings, would be answered in any order.
func TestWhatIsUnderWayIsNotAskedForAgainHoweverLongItTakes(t *testing.T) {
	w := ready(t, Config{})
	w.pass(time.Minute)
	if a := w.NextActions(w.now); a.Verify == source.NoVerification || !a.List {
		t.Fatalf("after a minute: %+v", a)
	}
	for range 10 {
		w.pass(time.Minute)
		if a := w.NextActions(w.now); a.Verify != source.NoVerification || a.List {
			t.Fatalf("asked for again: %+v", a)
		}
	}
}

func TestNothingIsSyncedBeforeItWasReadOnce(t *testing.T) {
	for resolver, what := range map[resolve.Method]string{resolve.ByCloud: "by the cloud", resolve.ByRecord: "by record"} {
		w := newWorld(t, Config{Method: resolver})
		if s := w.Status(w.now); s.Membership.Sync != source.Unsynced || s.Addresses.Sync != source.Unsynced || s.Publishable {
			t.Errorf("%s, before anything: %+v", what, s)
		}
		if w.verified(w.now, w.now, source.FullVerification, 1, nil); resolver == resolve.ByCloud && w.Status(w.now).Addresses.Sync != source.Unsynced {
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
				c.State = source.NotReady
			}
			w.up(c)
		}
		if !lookBegan.IsZero() && w.now.Sub(lookBegan) >= time.Second {
			w.verified(w.now, lookBegan, source.FullVerification, w.rv, nil)
			lookBegan = time.Time{}
		}
		if !listBegan.IsZero() && w.now.Sub(listBegan) >= 4*time.Second {
			w.listed(w.now, listBegan, one, nil, 0)
			listBegan = time.Time{}
		}
		a := w.NextActions(w.now)
		if a.Verify != source.NoVerification {
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

// A node that is replaced by another of its name is neither lost nor new.
func TestReplacedNodeIsNoLoss(t *testing.T) {
	w := three(t, "b")
	a := record("a", "10.0.0.1")
	for _, uid := range []string{"1", "2"} {
		a.UID = uid
		w.upsert(w.now, a)
	}
	w.remove(w.now, "a")
	if w.isConfirming() {
		t.Error("the loss of a node that was added since the last observation is confirmed")
	}
}
