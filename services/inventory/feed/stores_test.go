package feed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

func TestAnotherWordIsOneThatDiffersInMoreThanAges(t *testing.T) {
	for name, of := range map[string]struct {
		alter func(*roster.Status)
		same  bool
	}{
		"nothing":                {func(*roster.Status) {}, true},
		"ages":                   {func(s *roster.Status) { s.ObservedAt, s.Membership.Since = time.Time{}, start }, true},
		"whether it is told":     {func(s *roster.Status) { s.Told = false }, false},
		"the observation":        {func(s *roster.Status) { s.Observation++ }, false},
		"membership":             {func(s *roster.Status) { s.Membership.Sync = roster.Degraded }, false},
		"why membership is so":   {func(s *roster.Status) { s.Membership.Reason = "503" }, false},
		"addresses":              {func(s *roster.Status) { s.Addresses.Sync = roster.Degraded }, false},
		"why addresses are so":   {func(s *roster.Status) { s.Addresses.Reason = "503" }, false},
		"the ports of a Service": {func(s *roster.Status) { s.Ports = []roster.Port{{Protocol: "TCP", Number: 80}} }, false},
	} {
		s := told(1)
		of.alter(&s)
		want(t, name, SameWord(told(1), s), of.same)
		want(t, name+", the other way round", SameWord(s, told(1)), of.same)
	}
}

func TestAllStoresHearOfTheStatus(t *testing.T) {
	all := NewStores("life")
	one := all.Acquire(View{})
	status, changed := all.Status()
	want(t, "status before any", status.Told, false)
	if all.SetStatus(roster.Status{}) {
		t.Error("a status without a word leaves a view in doubt")
	}
	select {
	case <-changed:
		t.Error("the same word woke those who wait for another")
	default:
	}
	if !all.SetStatus(told(1)) {
		t.Error("the first word leaves an empty view without doubt")
	}
	select {
	case <-changed:
	default:
		t.Error("another word wakes nobody")
	}
	status, changed = all.Status()
	want(t, "status", status.Observation, 1)
	want(t, "status of a store", one.Since(nil).Status.Observation, 1)
	all.SetStatus(told(2))
	select {
	case <-changed:
	default:
		t.Error("a third word wakes nobody")
	}
}

// The order of a map must not decide whether doubt is heard of, so there are many views.
func TestTheDoubtOfOneViewIsEnough(t *testing.T) {
	pools := func(selector string) View {
		s, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		return View{Selector: s}
	}
	for range 5 {
		all := NewStores("life")
		all.Apply(up(node("a", roster.Ready, labelled("pool", "blue")), node("b", roster.Ready, labelled("pool", "red"))))
		for i := range 8 {
			all.Acquire(pools(fmt.Sprintf("pool in (red, other%d)", i)))
		}
		all.Acquire(pools("pool=none"))
		want(t, "doubt with the first word", all.SetStatus(told(1)), true)
		all.Acquire(pools("pool=blue"))
		want(t, "doubt by a change", all.Apply(gone("a")), true)
	}
}

func TestTheChangesOfAllViewsAreCounted(t *testing.T) {
	all := NewStores("life")
	want(t, "without a view", all.Revisions(), 0)
	all.Acquire(View{})
	all.Acquire(View{Labels: []string{"zone"}})
	all.Apply(up(node("a", roster.Ready)))
	all.Apply(gone("a"))
	want(t, "of two views", all.Revisions(), 4)
}

func TestWhatAViewLeavesOutIsSortedByName(t *testing.T) {
	all := NewStores("life")
	for i := range 20 {
		all.Apply(up(node(fmt.Sprintf("n%02d", i), roster.Ready)))
	}
	var got []string
	for _, n := range all.Outside(View{Selector: labels.Nothing()}) {
		got = append(got, n.Name)
	}
	if len(got) != 20 || !slices.IsSorted(got) {
		t.Errorf("got %v", got)
	}
}
