package roster

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/observe"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// stranded is a world in which b has had so many listings without an address that it waits for the next
// regular one.
func stranded(t *testing.T, b source.Candidate) *world {
	t.Helper()
	w := ready(t, Config{})
	w.pass(10 * time.Second)
	w.up(b)
	for listings := 0; listings < 6; {
		_, lists := w.serve(one, 1)
		listings += len(lists)
	}
	w.pass(10 * time.Second)
	if a := w.NextActions(w.now); a.List {
		t.Fatalf("%+v: b is urgent still", a)
	}
	return w
}

func TestANodeIsWorthAListingOfItsOwn(t *testing.T) {
	stray := source.Candidate{Name: "b", UID: "b", State: source.Ready, SystemUUID: s2, ProviderID: "ionos://" + s2}
	for _, of := range []struct {
		name string
		then func(*world)
		list bool
	}{
		{"when its provider ID changes", func(w *world) { c := stray; c.ProviderID = "ionos://" + s3; w.up(c) }, true},
		{"when its system UUID changes", func(w *world) { c := stray; c.SystemUUID = s3; w.up(c) }, true},
		{"when it becomes eligible", func(w *world) {
			c := stray
			c.Excluded = source.ExcludedByLabel
			w.up(c)
			w.up(stray)
		}, true},
		{"when it is new, whoever else waits", func(w *world) { w.up(node("c", s3)) }, true},
		{"and stays so when one that waits for longer speaks", func(w *world) {
			w.up(node("c", s3))
			c := stray
			c.Labels = map[string]string{"k": "v"}
			w.up(c)
		}, true},
		{"not when a label of it changes", func(w *world) { c := stray; c.Labels = map[string]string{"k": "v"}; w.up(c) }, false},
		{"not when it is excluded", func(w *world) { c := stray; c.Excluded = source.ExcludedByLabel; w.up(c) }, false},
		{"not when it is new and excluded", func(w *world) { c := node("c", s3); c.Excluded = source.ExcludedByLabel; w.up(c) }, false},
		{"not when it has its address", func(w *world) { c := node("a", s1); c.Labels = map[string]string{"k": "v"}; w.up(c) }, false},
		{"not when it has its address, though its provider ID changes", func(w *world) { w.up(node("a", s3)) }, false},
	} {
		t.Run(of.name, func(t *testing.T) {
			w := stranded(t, stray)
			of.then(w)
			if a := w.NextActions(w.now); a.List != of.list {
				t.Errorf("a listing at once: %t, want %t", a.List, of.list)
			}
		})
	}
}

func TestANodeThatBecomesEligibleIsNewToTheListings(t *testing.T) {
	byName := listing(server(s1, "a", "10.0.0.11"), server(s2, "b", "10.0.0.12"))
	b := source.Candidate{Name: "b", UID: "b", State: source.Ready, Excluded: source.ExcludedByLabel}
	w := ready(t, Config{})
	w.up(b)
	w.list(byName)
	w.pass(time.Second)
	b.Excluded = 0
	if w.up(b); len(w.Nodes()) != 1 {
		t.Error("a name is believed of a listing from before the node was eligible")
	}
	w.list(byName)
	w.sees("a 10.0.0.11", "b 10.0.0.12")
}

func TestAChangeOfANodeDoesNotMakeItNewToTheListings(t *testing.T) {
	w := ready(t, Config{})
	w.up(node("b", s2))
	w.list(one)
	if o := w.omits("b"); o.Reason != source.NotFoundInIONOS {
		t.Fatalf("got %+v", o)
	}
	w.pass(time.Second)
	c := node("b", s2)
	c.Labels = map[string]string{"k": "v"}
	w.up(c)
	if o := w.omits("b"); o.Reason != source.NotFoundInIONOS {
		t.Errorf("after a change of a label: %+v", o)
	}
}

func TestAListingFromBeforeANodeWasSeenSaysNothingOfIt(t *testing.T) {
	w := ready(t, Config{})
	w.pass(time.Minute)
	w.up(node("b", s2))
	for range 3 {
		w.listed(w.now, w.now.Add(-time.Second), one, nil, 0)
	}
	if got, want := w.members["b"].misses, (observe.Misses{Next: w.now}); got != want {
		t.Errorf("misses %+v by listings that could not have it, want %+v", got, want)
	}
	for _, at := range []time.Duration{0, time.Minute - 1, time.Minute} {
		w.listed(w.now.Add(at), w.now.Add(at), one, nil, 0)
		if got, want := w.members["b"].misses.Confirmed, at == time.Minute; got != want {
			t.Errorf("listings %s apart agree: %t, want %t", at, got, want)
		}
	}
}
