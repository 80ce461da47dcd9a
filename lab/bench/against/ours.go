package against

import (
	"context"
	"errors"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/floor"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const inventoryUser = "system:serviceaccount:slicefeed:slicefeed-inventory"

// grace is how long a process may take to end in order.
const grace = 20 * time.Second

// ours is both halves: a Node of one cluster, and a slice in the other.
func (s *scene) ours(ctx context.Context) (*contender, error) {
	sight, err := floor.NewSight(ctx, s.Pair, pair.Namespace)
	if err != nil {
		return nil, err
	}
	if err := s.StartHalves(ctx); err != nil {
		return nil, err
	}
	if _, _, err := sight.Until(ctx, 1, allReady); err != nil {
		return nil, err
	}
	node := s.herd.Nodes()[0]
	return &contender{
		name: "slicefeed, both halves", users: []string{inventoryUser, pair.WriterUser},
		set: node.SetReady, address: node.Address, sight: sight, pause: briefly, ready: true,
		usage: func() (figures.Usage, error) { return usageOf(s.Inventory.PID(), s.Writers[0].PID()) },
		stop: func() error {
			sight.Close()
			return errors.Join(s.Writers[0].Terminate(grace), s.Inventory.Terminate(grace))
		},
	}, nil
}
