package faults

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// Where a fault is: the ways that it concerns.
type where func(context.Context, *Scene) ([]*edge, error)

// The edges, as the table names them.
const (
	toSecured   = "inventory → secured API"
	toCloud     = "inventory → IONOS"
	toInventory = "writers → inventory"
	toSecond    = "writers → second inventory"
	toConsuming = "writers → consuming API"
	toBackends  = "probers → backends"
)

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
func flaps(at where, every time.Duration) Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		edges, err := at(ctx, s)
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithCancel(ctx)
		over := make(chan error, 1)
		go func() { // the lift waits for it
			var errs []error
			for ctx.Err() == nil {
				for _, e := range edges {
					e.down()
				}
				wait(ctx, every)
				for _, e := range edges {
					errs = append(errs, e.up())
				}
				wait(ctx, every)
			}
			over <- errors.Join(errs...)
		}()
		return func(context.Context) error {
			stop()
			return <-over
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

func at(address netip.Addr) netip.Prefix { return netip.PrefixFrom(address, address.BitLen()) }

// The toxics, by what people call them.
var (
	slow      = Toxic{Kind: "latency", Attributes: map[string]int{"latency": 300}}
	verySlow  = Toxic{Kind: "latency", Attributes: map[string]int{"latency": 2000}}
	jittery   = Toxic{Kind: "latency", Attributes: map[string]int{"latency": 150, "jitter": 150}}
	narrow    = Toxic{Kind: "bandwidth", Attributes: map[string]int{"rate": 1}} // KB/s
	stuck     = Toxic{Kind: "bandwidth", Attributes: map[string]int{"rate": 0}}
	resets    = Toxic{Kind: "reset_peer", Attributes: map[string]int{"timeout": 0}}
	blackHole = Toxic{Kind: "timeout", Attributes: map[string]int{"timeout": 0}}
	slowClose = Toxic{Kind: "slow_close", Attributes: map[string]int{"delay": 5000}}
	sliced    = Toxic{Kind: "slicer", Attributes: map[string]int{"average_size": 7, "size_variation": 3, "delay": 100}} // microseconds
	truncated = Toxic{Kind: "limit_data", Attributes: map[string]int{"bytes": 2000}}
)

// sent is the same toxic on what the half sends.
func (t Toxic) sent() Toxic {
	t.Upstream = true
	return t
}

func networkRows() []Row {
	return []Row{
		{Name: "the link is cut, and a node joins", Part: toInventory, Fault: down(of(links, both)), Meanwhile: Joins, Within: 15 * time.Second, Blind: Never},
		{
			Name: "the secured API is a black hole, and a node dies", Part: toSecured, Fault: poisoned(atSecured, blackHole, blackHole.sent()),
			Meanwhile: Dies, Through: 3 * time.Second, Within: 20 * time.Second, Blind: Never,
		},
		{Name: "the IONOS API is refused, and a node joins", Part: toCloud, Fault: down(atCloud), Meanwhile: Joins, Within: 20 * time.Second, Blind: Never},
		{
			Name: "the consuming API is out of reach of both writers, and two nodes are replaced", Part: toConsuming, Fault: down(of(stores, both)),
			Meanwhile: Rolls, Within: 20 * time.Second, Blind: takeover,
		},
		{Name: "all probes take two seconds longer", Part: toBackends, Fault: poisoned(atBackends(0), verySlow), Lasts: 6 * time.Second, Within: 10 * time.Second, Writes: 12, Blind: Never},
	}
}
