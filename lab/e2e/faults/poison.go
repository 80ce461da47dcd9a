package faults

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// Where a fault is: the ways that it concerns.
type where func(context.Context, *Scene) ([]*edge, error)

func atSecured(_ context.Context, s *Scene) ([]*edge, error) { return []*edge{s.secured}, nil }
func atCloud(_ context.Context, s *Scene) ([]*edge, error)   { return []*edge{s.cloud}, nil }

func of(edges func(*Scene) map[*pair.Half]*edge, pick func(leader, standby *pair.Half) []*pair.Half) where {
	return func(ctx context.Context, s *Scene) ([]*edge, error) {
		leader, standby, err := s.Leader(ctx)
		if err != nil {
			return nil, err
		}
		var all []*edge
		for _, writer := range pick(leader, standby) {
			all = append(all, edges(s)[writer])
		}
		return all, nil
	}
}

func links(s *Scene) map[*pair.Half]*edge       { return s.links }
func secondLinks(s *Scene) map[*pair.Half]*edge { return s.seconds }
func stores(s *Scene) map[*pair.Half]*edge      { return s.stores }

func both(leader, standby *pair.Half) []*pair.Half  { return []*pair.Half{leader, standby} }
func leading(leader, _ *pair.Half) []*pair.Half     { return []*pair.Half{leader} }
func standingBy(_, standby *pair.Half) []*pair.Half { return []*pair.Half{standby} }

// atBackends are the probers' ways to as many members of the secured cluster; 0: to all there are.
func atBackends(n int) where {
	return func(_ context.Context, s *Scene) ([]*edge, error) {
		all := s.Members(Default)
		if n == 0 {
			all = append(all, s.Members(Second)...)
		} else {
			all = all[len(all)-n:] // not those that changes concern
		}
		var edges []*edge
		for _, m := range all {
			edges = append(edges, s.probes[m.Address])
		}
		return edges, nil
	}
}

// poisoned puts toxics on the edges.
func poisoned(at where, toxics ...Toxic) Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		edges, err := at(ctx, s)
		if err != nil {
			return nil, err
		}
		lift := func(ctx context.Context) error {
			for _, e := range edges {
				e.clean(ctx)
			}
			return nil
		}
		for _, e := range edges {
			for _, t := range toxics {
				if err := e.poison(t); err != nil {
					return nil, errors.Join(err, lift(ctx))
				}
			}
		}
		return lift, nil
	}
}

// down has connections to them refused, and ends those that are open.
func down(at where) Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		edges, err := at(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, e := range edges {
			e.down()
		}
		return func(context.Context) error {
			var errs []error
			for _, e := range edges {
				errs = append(errs, e.up())
			}
			return errors.Join(errs...)
		}, nil
	}
}

// flaps takes the edges down and up again and again.
func flaps(at where, isDown, isUp time.Duration) Fault {
	return again(at, func(ctx context.Context, e *edge) error {
		e.down()
		wait(ctx, isDown)
		err := e.up()
		wait(ctx, isUp)
		return err
	})
}

// swaps leads the edges to the inventory's second replica, and back, again and again.
func swaps(at where, every time.Duration) Fault {
	first, second := netip.AddrPortFrom(pair.InventoryAddress, pair.LinkPort), netip.AddrPortFrom(replicaAddress, pair.LinkPort)
	return again(at, func(ctx context.Context, e *edge) error {
		err := e.point(second)
		wait(ctx, every)
		err = errors.Join(err, e.point(first))
		wait(ctx, every)
		return err
	})
}

// again does something to each edge until the fault is lifted, to each at its own pace.
func again(at where, turn func(context.Context, *edge) error) Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		edges, err := at(ctx, s)
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(ctx)
		var turning errgroup.Group // the lift waits for it
		for _, e := range edges {
			turning.Go(func() error {
				for ctx.Err() == nil {
					if err := turn(ctx, e); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return func(context.Context) error {
			stop()
			return turning.Wait()
		}, nil
	}
}

// cut loses every packet that machines of ours send to an address: a cable that is pulled out
// somewhere, of which nobody is told.
func cut(from func(context.Context, *Scene) ([]*pair.Half, error), to ...netip.Prefix) Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		halves, err := from(ctx, s)
		if err != nil {
			return nil, err
		}
		var mends []func() error
		lift := func(context.Context) error {
			var errs []error
			for _, mend := range mends {
				errs = append(errs, mend())
			}
			return errors.Join(errs...)
		}
		for _, half := range halves {
			for _, prefix := range to {
				if err := s.Hosts[half].Cut(prefix); err != nil {
					return nil, errors.Join(err, lift(ctx))
				}
				mends = append(mends, func() error { return s.Hosts[half].Mend(prefix) })
			}
		}
		return lift, nil
	}
}

func single(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }

// moved leads the edges to the inventory's second replica.
func moved(at where) Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		edges, err := at(ctx, s)
		if err != nil {
			return nil, err
		}
		lead := func(to netip.Addr) error {
			var errs []error
			for _, e := range edges {
				errs = append(errs, e.point(netip.AddrPortFrom(to, pair.LinkPort)))
			}
			return errors.Join(errs...)
		}
		return func(context.Context) error { return lead(pair.InventoryAddress) }, lead(replicaAddress)
	}
}

// all has several faults at once.
func all(faults ...Fault) Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		var lifts []func(context.Context) error
		lift := func(ctx context.Context) error {
			var errs []error
			for _, one := range lifts {
				errs = append(errs, one(ctx))
			}
			return errors.Join(errs...)
		}
		for _, fault := range faults {
			one, err := fault(ctx, s)
			if err != nil {
				return nil, errors.Join(err, lift(ctx))
			}
			lifts = append(lifts, one)
		}
		return lift, nil
	}
}

// every is each way that our halves take to anything but backends.
func every(ctx context.Context, s *Scene) ([]*edge, error) {
	var edges []*edge
	for _, some := range []where{atSecured, atCloud, of(links, both), of(secondLinks, both), of(stores, both)} {
		more, err := some(ctx, s)
		if err != nil {
			return nil, err
		}
		edges = append(edges, more...)
	}
	return edges, nil
}

// The machines that a cable leads from.
func ofInventory(_ context.Context, s *Scene) ([]*pair.Half, error) {
	return []*pair.Half{s.Inventory}, nil
}

func ofWriters(pick func(leader, standby *pair.Half) []*pair.Half) func(context.Context, *Scene) ([]*pair.Half, error) {
	return func(ctx context.Context, s *Scene) ([]*pair.Half, error) {
		leader, standby, err := s.Leader(ctx)
		return pick(leader, standby), err
	}
}
