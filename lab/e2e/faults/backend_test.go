package faults

import (
	"context"
	"time"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/pair"
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

func backendRows() []row {
	const (
		backends = "backends"
		ionosAPI = "IONOS API"
		silence  = 6 * time.Second
		passing  = 10 * time.Second // two good probes
		listed   = 15 * time.Second
	)
	servers := "/datacenters/" + pair.Datacenter + "/servers"
	return []row{
		{
			kind:          backends,
			fault:         "half of a cluster's refuse connections",
			inject:        someFail(backend.Refuse),
			correctDuring: detected,
			correctAfter:  passing,
			extraWrites:   4,
			short:         true,
		},
		{
			kind:          backends,
			fault:         "half of a cluster's are silent",
			inject:        someFail(backend.Silent),
			correctDuring: silence,
			correctAfter:  passing,
			extraWrites:   4,
		},
		{
			kind:          backends,
			fault:         "half of a cluster's hang",
			inject:        someFail(backend.Hang),
			correctDuring: silence,
			correctAfter:  passing,
			extraWrites:   4,
		},
		{
			kind:          backends,
			fault:         "half of a cluster's answer 500",
			inject:        someFail(backend.Error),
			correctDuring: detected,
			correctAfter:  passing,
			extraWrites:   4,
		},
		{
			kind:         backends,
			fault:        "all refuse connections",
			inject:       allFail(backend.Refuse),
			lasts:        5 * time.Second,
			correctAfter: passing,
			extraWrites:  panicWrites,
		},
		{
			kind:         backends,
			fault:        "all hang",
			inject:       allFail(backend.Hang),
			lasts:        8 * time.Second,
			correctAfter: passing,
			extraWrites:  panicWrites,
		},
		{
			kind:         backends,
			fault:        "one dies and comes back every 5 s",
			inject:       oneFlaps(5 * time.Second),
			during:       joins,
			lasts:        10 * time.Second,
			correctAfter: passing,
			extraWrites:  4,
		},
		{
			kind: ionosAPI, fault: "429 with Retry-After: 3 to everything", during: joins, correctAfter: listed, short: true,
			inject: cloudAnswers(ionosapi.Fault{Kind: ionosapi.TooManyRequestsSeconds, Wait: ionosapi.Duration(3 * time.Second)}),
		},
		{
			kind:         ionosAPI,
			fault:        "503 to everything",
			inject:       cloudAnswers(ionosapi.Fault{Kind: ionosapi.Unavailable}),
			during:       replaced,
			correctAfter: listed,
		},
		{
			kind:          ionosAPI,
			fault:         "no answer",
			inject:        cloudAnswers(ionosapi.Fault{Kind: ionosapi.Hang}),
			during:        dies,
			correctDuring: detected,
			correctAfter:  40 * time.Second,
		},
		{
			kind:          ionosAPI,
			fault:         "a valid list without servers",
			inject:        cloudAnswers(ionosapi.Fault{Kind: ionosapi.EmptyList, Path: servers}),
			during:        deleted,
			correctDuring: undisturbed,
			correctAfter:  listed,
		},
		{
			kind: ionosAPI, fault: "every server has the address of one", during: joins, correctDuring: listed, correctAfter: listed,
			inject: cloudAnswers(ionosapi.Fault{Kind: ionosapi.HiddenSharing, Address: "10.0.1.250", Path: servers}),
		},
	}
}
