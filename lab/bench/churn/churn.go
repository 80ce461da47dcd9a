// Package churn counts what changes of a Service's endpoints cost an API server: writes of slices, and their bytes. Our
// planner and the reconciler of Kubernetes' own EndpointSlice controller are given the same slices and the same changes.
// What only the endpoints of Pods have is not counted against the reconciler: without that, both write the same. What
// the whole pair writes is counted by the section propagation.
package churn

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/bench/report"
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
}

var (
	usual = extent{
		sizes: []int{10, 100, 1000, 5000}, samples: func(size int) int { return max(10, 20000/max(size, 200)) },
		rolling: 1000,
	}
	quick = extent{
		sizes: []int{10, 100, 1000, 5000}, samples: func(size int) int { return max(2, 2000/max(size, 200)) },
		rolling: 100,
	}
)

// Run is the section of the bench.
func Run(ctx context.Context, env report.Env) (report.Report, error) {
	extent := usual
	if env.Quick {
		extent = quick
	}
	found := &found{}
	for _, size := range extent.sizes {
		fmt.Fprintf(env.Out, "the planner and the in-tree reconciler with %d endpoints\n", size)
		rows, err := compare(ctx, size, extent.samples(size))
		if err != nil {
			return report.Report{}, err
		}
		found.comparisons = append(found.comparisons, rows...)
	}
	for _, atOnce := range []int{1, 10} {
		fmt.Fprintf(env.Out, "a rolling replacement of %d endpoints, %d at a time\n", extent.rolling, atOnce)
		rolling, err := roll(ctx, extent.rolling, atOnce)
		if err != nil {
			return report.Report{}, err
		}
		found.rollings = append(found.rollings, rolling)
	}
	return found.report(), nil
}
