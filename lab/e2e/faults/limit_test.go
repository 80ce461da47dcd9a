package faults

import (
	"context"
	"time"

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

// restartedWith restarts processes with an environment variable, and without it at the end of the fault.
func restartedWith(who components, name, value string) fault {
	return func(r *run) {
		for _, component := range who(r) {
			r.onEnd(func(ctx context.Context) error {
				component.Set(name, "")
				return restart(ctx, component)
			})
			component.Set(name, value)
			r.must(restart(r.ctx, component))
		}
	}
}

func limitRows() []row {
	const (
		kind       = "resource limits"
		openFiles  = 3 // standard input, output and error: no other one can be opened
		noMemory   = 1 << 20
		noDisk     = 1
		longEnough = 6 * time.Second
		restarted  = 20 * time.Second
	)
	leaderFiles, inventoryFiles := limited(theLeader, pair.OpenFiles, openFiles), limited(theInventory, pair.OpenFiles, openFiles)
	return []row{
		{
			kind:         kind,
			fault:        "no file descriptor for the leader: it cannot probe",
			inject:       leaderFiles,
			lasts:        longEnough,
			correctAfter: undisturbed,
			noWrites:     true,
		},
		{
			kind:         kind,
			fault:        "no file descriptor for the leader",
			inject:       leaderFiles,
			during:       joins,
			lasts:        4 * time.Second,
			correctAfter: longEnough,
			noWrites:     true,
		},
		{
			kind:         kind,
			fault:        "no file descriptor for the leader: it cannot notice",
			inject:       leaderFiles,
			during:       backendDies,
			lasts:        longEnough,
			correctAfter: longEnough,
			noWrites:     true,
		},
		{
			kind:          kind,
			fault:         "no file descriptor for the leader",
			inject:        leaderFiles,
			during:        deleted,
			correctDuring: undisturbed,
			correctAfter:  undisturbed,
			noWrites:      true,
			short:         true,
		},
		{kind: kind, fault: "no file descriptor for the inventory", inject: inventoryFiles, during: replaced, correctAfter: restarted},
		{
			kind:          kind,
			fault:         "no file descriptor for the inventory, and connections close",
			inject:        together(inventoryFiles, reconnect),
			during:        dies,
			correctDuring: detected,
			correctAfter:  restarted,
		},
		{
			kind: kind, fault: "no more memory for the leader", inject: limited(theLeader, pair.AddressSpace, noMemory), during: replaced,
			correctAfter: takeover + undisturbed, noWrites: true, takeover: takeover,
		},
		{
			kind:         kind,
			fault:        "no more memory for the inventory",
			inject:       limited(theInventory, pair.AddressSpace, noMemory),
			during:       replaced,
			correctAfter: restarted,
		},
		{
			kind:          kind,
			fault:         "a memory limit below what inventory and writers use at rest",
			inject:        restartedWith(these(theInventory, bothWriters), "GOMEMLIMIT", "12MiB"),
			during:        replaced,
			correctDuring: takeover,
			correctAfter:  restarted,
			noWrites:      true,
			takeover:      takeover,
		},
		{
			kind:          kind,
			fault:         "the disk with the leader's log is full",
			inject:        limited(theLeader, pair.FileSize, noDisk),
			during:        replaced,
			correctDuring: takeover + undisturbed,
			correctAfter:  slowed,
			noWrites:      true,
			takeover:      takeover,
		},
		{
			kind:          kind,
			fault:         "the disk with the inventory's log is full",
			inject:        limited(theInventory, pair.FileSize, noDisk),
			during:        replaced,
			correctDuring: slowed,
			correctAfter:  slowed,
		},
	}
}
