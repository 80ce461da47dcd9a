package faults

import (
	"context"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// limited limits a resource of running processes. What dies of it starts again at the end of the fault, as a kubelet
// would start it.
func limited(who components, what pair.Resource, to uint64) fault {
	return func(r *run) {
		for _, component := range who(r) {
			unlimit, err := component.Limit(what, to)
			r.must(err)
			r.onEnd(func(ctx context.Context) error {
				if err := unlimit(); err != nil {
					return err
				}
				if component.Running() {
					return nil
				}
				_ = component.Kill() // returns how it died, which was to be expected
				return component.Start(ctx)
			})
		}
	}
}
