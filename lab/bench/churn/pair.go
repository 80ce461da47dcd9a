package churn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// counted is what the pair wrote for changes of its Nodes, one after the other.
type counted struct{ size, changes, writes int }

// settle is how long a further write would be seen after the last change.
const settle = time.Second

func count(ctx context.Context, out io.Writer, programs controlplane.Programs, extent extent) ([]counted, error) {
	p, err := pair.Start(ctx, pair.Options{
		Programs:  programs,
		Inventory: map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet},
		Writer:    map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet, "HEALTH_CHECK_MODE": "off", "SHRINK_WINDOW": "0"},
	})
	if err != nil {
		return nil, err
	}
	counts, err := countAll(ctx, out, p, extent)
	return counts, errors.Join(err, p.Stop())
}

func countAll(ctx context.Context, out io.Writer, p *pair.Pair, extent extent) ([]counted, error) {
	herd, err := p.NewHerd()
	if err != nil {
		return nil, err
	}
	if err := p.StartHalves(ctx); err != nil {
		return nil, err
	}
	if _, err := p.WaitLeading(ctx); err != nil {
		return nil, err
	}
	var all []counted
	for _, size := range extent.herds {
		fmt.Fprintf(out, "the pair with %d endpoints\n", size)
		if err := herd.Grow(ctx, size); err != nil {
			return nil, err
		}
		if err := wait(ctx, p, pair.AreJust(pair.Ready, herd.Addresses()...)); err != nil {
			return nil, err
		}
		c, err := countAt(ctx, p, herd, extent.rounds)
		if err != nil {
			return nil, fmt.Errorf("with %d endpoints: %w", size, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// wait waits for the slices for as long as a change may take on a busy machine.
func wait(ctx context.Context, p *pair.Pair, are func([]*discoveryv1.EndpointSlice) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, err := p.WaitSlices(ctx, are)
	return err
}

// countAt has a Node in each round turn unready and ready again, leave and come back.
func countAt(ctx context.Context, p *pair.Pair, herd *pair.Herd, rounds int) (counted, error) {
	before, err := p.Writes(ctx)
	if err != nil {
		return counted{}, err
	}
	c, all := counted{size: len(herd.Nodes())}, herd.Nodes()
	for i := range rounds {
		node := all[i*len(all)/rounds]
		for _, change := range []struct {
			make func() error
			is   pair.Condition
		}{
			{func() error { return node.SetReady(ctx, false) }, pair.Out},
			{func() error { return node.SetReady(ctx, true) }, pair.Ready},
			{func() error { return p.SecuredClient().CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}) }, pair.Absent},
			{func() error { return node.Join(ctx) }, pair.Ready},
		} {
			if err := change.make(); err != nil {
				return c, err
			}
			if err := wait(ctx, p, pair.Are(change.is, node.Address)); err != nil {
				return c, err
			}
			c.changes++
		}
	}
	select { // a further write that one of them took is not to be missed
	case <-time.After(settle):
	case <-ctx.Done():
		return c, ctx.Err()
	}
	after, err := p.Writes(ctx)
	c.writes = len(after) - len(before)
	return c, err
}
