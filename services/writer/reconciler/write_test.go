package reconciler

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
)

func TestFailedWriteIsRepeatedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(withSlice())
		f.Decide(fixtureKey, time.Now())
		write := func() (decisions int, waits []time.Duration) {
			f.decided.take()
			f.written.take()
			f.Write(t.Context(), fixtureKey, time.Now())
			decisions, _ = f.decided.take()
			_, waits = f.written.take()
			return decisions, waits
		}
		f.store.err = apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "shop-slicefeed", errors.New("no"))
		for n, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second} {
			if decisions, _ := write(); decisions != 1 {
				t.Fatalf("failure %d: %d decisions, want one", n+1, decisions)
			}
			f.Decide(fixtureKey, time.Now())
			if _, waits := write(); !slices.Equal(waits, []time.Duration{want}) {
				t.Errorf("failure %d: the next write waits %v, want %s", n+1, waits, want)
			}
			time.Sleep(want)
		}
		if f.store.err = nil; f.backoff.NumRequeues(fixtureKey) != 5 {
			t.Errorf("%d failures are counted, want 5", f.backoff.NumRequeues(fixtureKey))
		}
		if decisions, waits := write(); decisions != 1 || len(waits) != 0 || f.backoff.NumRequeues(fixtureKey) != 0 {
			t.Errorf(
				"after a success: %d decisions, waits %v, %d failures are counted",
				decisions,
				waits,
				f.backoff.NumRequeues(fixtureKey),
			)
		}
	})
}

func TestDelayedWriteWaitsAsLongAsRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(time.Minute)
		for _, tt := range []struct {
			name      string
			err       error
			notBefore time.Time
			decisions int
			after     []time.Duration
		}{
			{"the API server rejects requests for a while", &applier.RetryLaterError{At: at, Err: errors.New("429")}, at, 1, nil},
			{"a repair waits, and no other write", &applier.RetryLaterError{At: at, Err: errors.New("edited"), Repair: true}, time.Time{}, 0, []time.Duration{time.Minute}},
			{"a slice has changed", &applier.StaleError{Slice: "a", Err: errors.New("409")}, time.Time{}, 1, nil},
		} {
			f := newFixture(managed())
			s := f.state(fixtureKey)
			f.handleFailure(s, causes{}, tt.err)
			decisions, after := f.decided.take()
			if !s.pending.notBefore.Equal(tt.notBefore) || decisions != tt.decisions || !slices.Equal(after, tt.after) {
				t.Errorf(
					"%s: not before %s, %d decisions now, and after %v; want %s, %d, %v",
					tt.name,
					s.pending.notBefore,
					decisions,
					after,
					tt.notBefore,
					tt.decisions,
					tt.after,
				)
			}
			if f.backoff.NumRequeues(fixtureKey) != 0 {
				t.Errorf("%s: it counts as a failure", tt.name)
			}
		}
	})
}

func TestCausesAreKeptUntilTheyAreWritten(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	o, term := &applier.Order{}, at(1)
	var p pending
	p.put(o, term, causes{feed: at(3)})
	p.put(o, term, causes{feed: at(5), probe: at(5)})
	_, of, _ := p.take(term, at(6))
	if want := (causes{feed: at(3), probe: at(5)}); of != want {
		t.Errorf("causes of a replaced order: %v, want %v", of, want)
	}
	p.put(o, term, causes{feed: at(7)})
	p.postpone(of, time.Time{})
	p.put(o, term, causes{})
	_, of, _ = p.take(term, at(8))
	if want := (causes{feed: at(3), probe: at(5)}); of != want {
		t.Errorf("causes of an order that failed: %v, want %v", of, want)
	}
	p.postpone(of, time.Time{})
	p.put(nil, term, causes{})
	p.put(o, term, causes{})
	if _, of, _ := p.take(term, at(9)); of != (causes{}) {
		t.Errorf("causes of what does not have to be written: %v, want none", of)
	}
}

func TestOrderWaits(t *testing.T) {
	now := time.Now()
	var p pending
	if o, _, wait := p.take(now, now); o != nil || wait != 0 {
		t.Errorf("empty: %v, %s", o, wait)
	}
	p.postpone(causes{}, now.Add(time.Second))
	p.put(&applier.Order{}, now, causes{})
	if o, _, wait := p.take(now, now); o != nil || wait != time.Second {
		t.Errorf("too early: %v, %s", o, wait)
	}
	if o, _, wait := p.take(now, now.Add(time.Second)); o == nil || wait != 0 {
		t.Errorf("in time: %v, %s", o, wait)
	}
	p.put(&applier.Order{}, now, causes{})
	if o, _, wait := p.take(now, now); o == nil || wait != 0 {
		t.Errorf("the next one: %v, %s", o, wait)
	}
}

// The answer to a write arrives after the watch has shown what another client did next.
func TestEditDuringAWriteIsRepaired(t *testing.T) {
	f := newFixture(withSlice())
	f.service.view.ResourceVersion = "1"
	decide := func() { f.Decide(fixtureKey, time.Now()) }
	decide()
	f.store.during = func() {
		f.store.during = nil
		edited := f.service.view.Slices[0].DeepCopy()
		edited.ResourceVersion, edited.Endpoints = "3", nil
		f.service.view.Slices, f.service.view.ResourceVersion = []*discoveryv1.EndpointSlice{edited}, "3"
		decide()
	}
	f.Write(t.Context(), fixtureKey, time.Now())
	f.store.updated = nil
	decide()
	f.Write(t.Context(), fixtureKey, time.Now())
	if f.store.updated == nil || len(f.store.updated.Endpoints) != 1 {
		t.Errorf("written is %v, want the endpoint again", f.store.updated)
	}
}
