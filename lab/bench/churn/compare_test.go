package churn

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheReconcilerIsGivenTheSlicesThatThePlannerLeft(t *testing.T) {
	rows, err := compare(t.Context(), 150, 5)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 2 {
		t.Fatalf("only %d changes are compared", len(rows))
	}
	for _, r := range rows {
		if r.changes != 10 || r.theirs.writes != 10 || r.ours.writes != 10 {
			t.Errorf(
				"%s: %d changes, %d writes, in-tree %d: from the same slices each is one write",
				r.change,
				r.changes,
				r.ours.writes,
				r.theirs.writes,
			)
		}
		if r.theirs.pods == 0 || r.ours.pods != 0 {
			t.Errorf("%s: %d bytes in-tree, and %d of ours, are counted as those of Pods", r.change, r.theirs.pods, r.ours.pods)
		}
		if r.theirs.bytes != r.ours.bytes {
			t.Errorf("%s: %d bytes, in-tree %d: without names and Pods the same slice is written", r.change, r.ours.bytes, r.theirs.bytes)
		}
	}
}

func TestACopyOfAClusterIsNotAlteredByEither(t *testing.T) {
	c, from := newCrowd(150), &cluster{}
	from.plan(desired(c.list))
	var before []string
	for _, slice := range from.slices {
		before = append(before, slice.String())
	}
	c.drain(120)
	if _, _, _, _, err := newTree().both(from, c.list); err != nil {
		t.Fatal(err)
	}
	var after []string
	for _, slice := range from.slices {
		after = append(after, slice.String())
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func TestAReplacementEndsWithTheNewEndpointsAlone(t *testing.T) {
	for _, atOnce := range []int{1, 10} {
		r, err := roll(t.Context(), 120, atOnce)
		if err != nil {
			t.Fatal(err)
		}
		if want := 3 * 120 / atOnce; r.changes != want || r.ours.writes < want || r.theirs.writes < want {
			t.Errorf(
				"%d at a time: %d changes, %d writes, in-tree %d; want at least %d of each",
				atOnce,
				r.changes,
				r.ours.writes,
				r.theirs.writes,
				want,
			)
		}
	}
}

func TestMoreThanTheOtherIsCountedChangeByChange(t *testing.T) {
	var c comparison
	c.count(cost{writes: 1, bytes: 10}, cost{writes: 1, bytes: 10})
	c.count(cost{writes: 2, bytes: 11}, cost{writes: 1, bytes: 10, pods: 5})
	c.count(cost{writes: 1, bytes: 1}, cost{writes: 9, bytes: 90}) // makes up for nothing
	want := comparison{
		changes:    3,
		ours:       cost{writes: 4, bytes: 22},
		theirs:     cost{writes: 11, bytes: 110, pods: 5},
		most:       2,
		moreWrites: 1,
		moreBytes:  1,
	}
	if c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
}
