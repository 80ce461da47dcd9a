// Package churn counts what changes of a Service's endpoints cost an API server: writes of
// slices, and their bytes. It promises that our planner and the reconciler of Kubernetes' own
// EndpointSlice controller are given the same slices and the same changes, and that the writes
// of the pair are counted by the API server. It refuses to set against the reconciler what only
// the endpoints of Pods have: without that, both write the same.
package churn

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const (
	namespace  = "web"
	service    = "shop"
	serviceUID = types.UID("0f8fad5b-d9cb-469f-a165-70867728950e")
	nodePort   = 30080
	perSlice   = 100 // the default of both
)

// extent is how much is counted.
type extent struct {
	sizes   []int
	samples func(size int) int // of each change, from the slices of either
	rolling int                // endpoints that are replaced
	herds   []int              // sizes for the pair
	rounds  int                // of changes of the pair, in each size
}

var (
	usual = extent{
		sizes: []int{10, 100, 1000, 5000}, samples: func(size int) int { return max(10, 20000/max(size, 200)) },
		rolling: 1000, herds: []int{100, 1000}, rounds: 25,
	}
	quick = extent{
		sizes: []int{10, 100, 1000, 5000}, samples: func(size int) int { return max(2, 2000/max(size, 200)) },
		rolling: 100, herds: []int{100}, rounds: 10,
	}
)

// Run is the section of the bench.
func Run(ctx context.Context, env report.Env) ([]*report.Part, error) {
	programs, err := controlplane.Build(ctx, env.Out)
	if err != nil {
		return nil, err
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return nil, err
	}
	extent := usual
	if env.Quick {
		extent = quick
	}
	found := &found{}
	for _, size := range extent.sizes {
		fmt.Fprintf(env.Out, "the planner and the in-tree reconciler with %d endpoints\n", size)
		rows, err := compare(ctx, size, extent.samples(size))
		if err != nil {
			return nil, err
		}
		found.comparisons = append(found.comparisons, rows...)
	}
	for _, atOnce := range []int{1, 10} {
		fmt.Fprintf(env.Out, "a rolling replacement of %d endpoints, %d at a time\n", extent.rolling, atOnce)
		rolling, err := roll(ctx, extent.rolling, atOnce)
		if err != nil {
			return nil, err
		}
		found.rollings = append(found.rollings, rolling)
	}
	if found.counts, err = count(ctx, env.Out, programs, extent); err != nil {
		return nil, err
	}
	return []*report.Part{found.part()}, nil
}
