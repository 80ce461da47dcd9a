package churn

import (
	"context"
	"fmt"
	"maps"
	"net/netip"

	"github.com/slicefeed/slicefeed/services/writer/planner"
)

// both plans one change from the same slices with either, and returns what each leaves.
func (t *tree) both(from *cluster, endpoints []planner.Endpoint) (planned, reconciled *cluster, ours, theirs cost, err error) {
	planned, reconciled = from.copy(), from.copy()
	ours = planned.plan(desired(endpoints))
	theirs, err = t.reconcile(reconciled, endpoints)
	if err == nil && !maps.Equal(planned.conditions(), reconciled.conditions()) {
		err = fmt.Errorf("the planner leaves other endpoints than the in-tree reconciler: %s", difference(planned, reconciled))
	}
	return planned, reconciled, ours, theirs, err
}

func difference(planned, reconciled *cluster) string {
	is, want := planned.conditions(), reconciled.conditions()
	var odd []netip.Addr
	for address, conditions := range want {
		if got, ok := is[address]; !ok || got != conditions {
			odd = append(odd, address)
		}
	}
	return fmt.Sprintf("%d instead of %d, at odds about %v", len(is), len(want), odd)
}

// comparison is what both needed for the same changes from the same slices.
type comparison struct {
	size, changes int
	change        string
	ours, theirs  cost

	most       int // writes that any one change took of us
	moreWrites int // changes that took more writes of us than of the other
	moreBytes  int // and more bytes
}

// compare makes each kind of change in turn, so many times, so that there are always about as
// many endpoints: once from the slices that the planner left each time, and once from those
// that the in-tree reconciler left.
func compare(ctx context.Context, size, samples int) ([]comparison, error) {
	rows := make([]comparison, len(changes))
	for i, change := range changes {
		rows[i] = comparison{size: size, change: change.name}
	}
	t := newTree()
	for _, fromOurs := range []bool{true, false} {
		c, at := newCrowd(size), &cluster{}
		at.plan(desired(c.list))
		for i := range len(changes) * samples {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			kind := i % len(changes)
			changes[kind].make(c)
			planned, reconciled, ours, theirs, err := t.both(at, c.list)
			if err != nil {
				return nil, fmt.Errorf("%d endpoints, %s: %w", size, changes[kind].name, err)
			}
			rows[kind].count(ours, theirs)
			if at = planned; !fromOurs {
				at = reconciled
			}
		}
	}
	return rows, nil
}

func (c *comparison) count(ours, theirs cost) {
	c.changes++
	c.ours.add(ours)
	c.theirs.add(theirs)
	c.most = max(c.most, ours.writes)
	if ours.writes > theirs.writes {
		c.moreWrites++
	}
	if ours.bytes > theirs.bytes {
		c.moreBytes++
	}
}

// rolling is the replacement of all endpoints by others, a few at a time: the new ones join,
// the old ones drain, the old ones are gone.
type rolling struct {
	size, atOnce, changes  int
	ours, theirs           cost
	ourSlices, theirSlices int // that are left in the end
}

// roll has each go its own way from the same slices, since that is what a user would pay.
func roll(ctx context.Context, size, atOnce int) (rolling, error) {
	r := rolling{size: size, atOnce: atOnce}
	c, planned, t := newCrowd(size), &cluster{}, newTree()
	planned.plan(desired(c.list))
	reconciled := planned.copy()
	for range size / atOnce {
		for _, step := range []func(int){c.join, c.drain, c.leave} {
			if err := ctx.Err(); err != nil {
				return r, err
			}
			step(atOnce)
			r.changes++
			r.ours.add(planned.plan(desired(c.list)))
			theirs, err := t.reconcile(reconciled, c.list)
			if err != nil {
				return r, fmt.Errorf("a replacement of %d endpoints, %d at a time: %w", size, atOnce, err)
			}
			r.theirs.add(theirs)
		}
	}
	r.ourSlices, r.theirSlices = len(planned.slices), len(reconciled.slices)
	if !maps.Equal(planned.conditions(), reconciled.conditions()) {
		return r, fmt.Errorf("after a replacement of %d endpoints: %s", size, difference(planned, reconciled))
	}
	return r, nil
}
