package feed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/slicefeed/slicefeed/services/inventory/source"
)

func TestSameStatusIgnoresAges(t *testing.T) {
	for name, tc := range map[string]struct {
		alter func(*source.Status)
		same  bool
	}{
		"nothing":                {func(*source.Status) {}, true},
		"ages":                   {func(s *source.Status) { s.ObservedAt, s.Membership.Since = time.Time{}, start }, true},
		"published":              {func(s *source.Status) { s.Publishable = false }, false},
		"the observation":        {func(s *source.Status) { s.Observation++ }, false},
		"membership":             {func(s *source.Status) { s.Membership.Sync = source.Degraded }, false},
		"reason of membership":   {func(s *source.Status) { s.Membership.Reason = "503" }, false},
		"addresses":              {func(s *source.Status) { s.Addresses.Sync = source.Degraded }, false},
		"reason of addresses":    {func(s *source.Status) { s.Addresses.Reason = "503" }, false},
		"the ports of a Service": {func(s *source.Status) { s.Ports = []source.Port{{Protocol: "TCP", Number: 80}} }, false},
	} {
		s := publishedStatus(1)
		tc.alter(&s)
		checkEqual(t, name, SameStatus(publishedStatus(1), s), tc.same)
		checkEqual(t, name+", swapped", SameStatus(s, publishedStatus(1)), tc.same)
	}
}

func TestSetStatusReachesAllStores(t *testing.T) {
	all := NewStores("epoch")
	store := all.Acquire(View{})
	status, changed := all.Status()
	checkEqual(t, "status before any", status.Publishable, false)
	all.SetStatus(source.Status{})
	select {
	case <-changed:
		t.Error("an equal status closed the channel")
	default:
	}
	all.SetStatus(publishedStatus(1))
	select {
	case <-changed:
	default:
		t.Error("the first publication did not close the channel")
	}
	status, changed = all.Status()
	checkEqual(t, "status", status.Observation, 1)
	checkEqual(t, "status of a store", store.Since(nil).Status.Observation, 1)
	all.SetStatus(publishedStatus(2))
	select {
	case <-changed:
	default:
		t.Error("another observation did not close the channel")
	}
}

func TestCountsRevisionsOfAllViews(t *testing.T) {
	all := NewStores("epoch")
	checkEqual(t, "without a view", all.TotalRevisions(), 0)
	all.Acquire(View{})
	all.Acquire(View{Labels: []string{"zone"}})
	all.Apply(upserts(newNode("a", source.Ready)))
	all.Apply(removals("a"))
	checkEqual(t, "of two views", all.TotalRevisions(), 4)
}

func TestNotInViewIsSorted(t *testing.T) {
	all := NewStores("epoch")
	for i := range 20 {
		all.Apply(upserts(newNode(fmt.Sprintf("n%02d", i), source.Ready)))
	}
	var got []string
	for _, n := range all.NotInView(View{Selector: labels.Nothing()}) {
		got = append(got, n.Name)
	}
	if len(got) != 20 || !slices.IsSorted(got) {
		t.Errorf("got %v", got)
	}
}
