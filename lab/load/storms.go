package load

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// storm is what was measured of one kind, each time that all subscribers came back.
type storm struct {
	took   []Times
	bytes  []int64 // of each subscriber of each time, until it was synced
	cpu    float64 // seconds of the server, of all
	resets float64 // messages of resets that were sent
}

// stormKinds are the storms: to the bare server, with nothing, to a set that did not change, to one that did, and to an
// inventory that was restarted meanwhile.
type stormKinds struct{ bare, fresh, unchanged, changed, restarted storm }

// measureStorms has no subscriber connected between two storms.
func (f *fanout) measureStorms(ctx context.Context, site *Site, dir string) (err error) {
	fleet, err := NewFleet(dir, f.nodes)
	if err != nil {
		return err
	}
	inventory, err := site.Inventory(fleet)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, inventory.Stop(grace)) }()
	crowd, err := NewCrowd(inventory, f.subscribers, f.nodes)
	if err != nil {
		return err
	}
	if err := f.come(ctx, "with nothing", &f.storms.fresh, inventory, crowd); err != nil {
		return err
	}
	for n := range f.size.storms {
		if err := f.come(ctx, "to the bare server", &f.storms.bare, f.bare.server, f.bare.crowd); err != nil {
			return err
		}
		if err := f.come(ctx, "to what they hold", &f.storms.unchanged, inventory, crowd); err != nil {
			return err
		}
		if err := f.alter(ctx, n, fleet, inventory); err != nil {
			return err
		}
		if err := f.come(ctx, "to some changes", &f.storms.changed, inventory, crowd); err != nil {
			return err
		}
		if err := errors.Join(inventory.Stop(grace), inventory.Start(ctx)); err != nil {
			return err
		}
		if err := f.come(ctx, "to a restarted inventory", &f.storms.restarted, inventory, crowd); err != nil {
			return err
		}
	}
	return nil
}

// come has all subscribers come at once, and leave.
func (f *fanout) come(ctx context.Context, how string, into *storm, server *Server, crowd *Crowd) error {
	before, err := server.Metrics()
	if err != nil {
		return err
	}
	took, err := crowd.Come(ctx)
	if err != nil {
		return err
	}
	after, err := server.Metrics()
	if err != nil {
		return err
	}
	fmt.Fprintf(f.out, "%d subscribers came %s in %s\n", f.subscribers, how, took.Last().Round(time.Millisecond))
	resets := func(m Metrics) float64 {
		return m.Sum("slicefeed_inventory_stream_messages_total", `kind="reset"`)
	}
	into.took = append(into.took, took)
	into.bytes = append(into.bytes, crowd.Bytes()...)
	into.cpu += after.CPU() - before.CPU()
	into.resets += resets(after) - resets(before)
	return crowd.Leave()
}

// alter changes some nodes while none is connected, others each time.
func (f *fanout) alter(ctx context.Context, n int, fleet *Fleet, inventory *Server) error {
	changes := func() (float64, error) {
		m, err := inventory.Metrics()
		return m.Sum("slicefeed_inventory_feed_changes_total"), err
	}
	before, err := changes()
	if err != nil {
		return err
	}
	var altered []int
	for i := range f.altered {
		altered = append(altered, (n*f.altered+i)%f.nodes)
	}
	if _, err := fleet.Flip(altered...); err != nil {
		return err
	}
	return inventory.Until(ctx, "the changes are in the feed", time.Minute, func() (bool, error) {
		now, err := changes()
		return now >= before+float64(f.altered), err
	})
}
