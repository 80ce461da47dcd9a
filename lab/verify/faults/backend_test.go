package faults

import (
	"context"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/ionosapi"
)

// someFail has half of the backends of the secured cluster fail: the two leave and come back, with a write each.
func someFail(mode backend.Mode) fault {
	return func(r *run) {
		for _, n := range r.nodesOf(first)[2:] {
			n.dead = true
			r.onEnd(func(context.Context) error {
				n.dead = false
				return n.Set(backend.Serve)
			})
			r.must(n.Set(mode))
		}
	}
}

// allFail has all backends fail. The slices stay: the network of the prober is the likelier cause.
func allFail(mode backend.Mode) fault {
	return func(r *run) {
		r.onEnd(r.waitNoProbeFails) // after the first pass, those that still fail are not ready until they pass too
		for _, n := range r.allNodes() {
			r.onEnd(func(context.Context) error { return n.Set(backend.Serve) })
			r.must(n.Set(mode))
		}
	}
}

// oneFlaps has a backend die and come back, over and over.
func oneFlaps(every time.Duration) fault {
	return func(r *run) {
		n := r.nodesOf(first)[3]
		r.onEnd(func(context.Context) error { return n.Set(backend.Serve) })
		r.repeat(func(ctx context.Context) error {
			for _, mode := range []backend.Mode{backend.Refuse, backend.Serve} {
				if err := n.Set(mode); err != nil {
					return err
				}
				wait(ctx, every)
			}
			return nil
		})
	}
}

// cloudAnswers has the cloud answer with a fault, from before the next listing on.
func cloudAnswers(fault ionosapi.Fault) fault {
	return func(r *run) {
		_, err := r.Cloud.AddFault(fault)
		r.must(err)
		r.onEnd(func(context.Context) error {
			r.Cloud.ClearFaults()
			return nil
		})
		requests := r.Cloud.Asked()
		r.must(eventually(r.ctx, "the cloud gets two requests", func() bool { return r.Cloud.Asked() >= requests+2 }))
	}
}
