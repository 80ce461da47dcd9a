package faults

import (
	"context"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

const limits = "limits"

// limited sets a limit of running processes. What dies of it is started again at the lift, as a
// kubelet would.
func limited(who who, what pair.Resource, to uint64) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		halves, err := who(ctx, s)
		if err != nil {
			return err
		}
		for _, half := range halves {
			back, err := half.Limit(what, to)
			if err != nil {
				return err
			}
			undo.then(func(ctx context.Context) error {
				if err := back(); err != nil {
					return err
				}
				if half.Running() {
					return nil
				}
				_ = half.Kill() // it says how it died, which was to be expected
				return half.Start(ctx)
			})
		}
		return nil
	})
}

// tight has processes run with a setting of Go's from their next start on, which is now.
func tight(who who, name, value string) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		halves, err := who(ctx, s)
		if err != nil {
			return err
		}
		again := func(ctx context.Context, half *pair.Half, value string) error {
			half.Set(name, value)
			if err := half.Terminate(20 * time.Second); err != nil {
				return err
			}
			return half.Start(ctx)
		}
		for _, half := range halves {
			undo.then(func(ctx context.Context) error { return again(ctx, half, "") })
			if err := again(ctx, half, value); err != nil {
				return err
			}
		}
		return nil
	})
}

func limitRows() []Row {
	const none = 3 // standard input, output and error: not one more can be opened
	return []Row{
		{
			Name: "the leader has no file descriptor left: no probe can be sent, none fails", Part: limits, Fault: limited(theLeader, pair.OpenFiles, none),
			Lasts: 6 * time.Second, Within: follow, Blind: true,
		},
		{
			Name: "the leader has no file descriptor left, and a node joins", Part: limits, Fault: limited(theLeader, pair.OpenFiles, none), Meanwhile: Joins,
			Lasts: 4 * time.Second, Within: 6 * time.Second, Blind: true,
		},
		{
			Name: "the leader has no file descriptor left, and a backend dies: nobody finds out", Part: limits, Fault: limited(theLeader, pair.OpenFiles, none), Meanwhile: diesUnsaid,
			Lasts: 6 * time.Second, Within: 6 * time.Second, Blind: true,
		},
		{
			Name: "the leader has no file descriptor left, and a Node is deleted", Part: limits, Fault: limited(theLeader, pair.OpenFiles, none), Meanwhile: Leaves,
			Through: follow, Within: follow, Blind: true,
		},
		{
			Name: "the inventory has no file descriptor left, and two nodes are replaced", Part: limits, Fault: limited(theInventory, pair.OpenFiles, none), Meanwhile: Rolls,
			Within: 20 * time.Second, Writes: 4,
		},
		{
			Name: "the inventory has no file descriptor left and the link breaks, and a node dies", Part: limits,
			Fault: all(limited(theInventory, pair.OpenFiles, none), linkBroken()), Meanwhile: Dies, Through: noticed, Within: 20 * time.Second,
		},
		{
			Name: "the leader can have no more memory than it has, and two nodes are replaced", Part: limits, Fault: limited(theLeader, pair.AddressSpace, 1<<20), Meanwhile: Rolls,
			Within: takeover + follow, Writes: 4, Blind: true, Recovers: takeover,
		},
		{
			Name: "the inventory can have no more memory than it has, and two nodes are replaced", Part: limits, Fault: limited(theInventory, pair.AddressSpace, 1<<20), Meanwhile: Rolls,
			Within: 20 * time.Second, Writes: 4,
		},
		{
			Name: "both halves have a memory limit below what they use at rest, and two nodes are replaced", Part: limits,
			Fault: tight(these(theInventory, bothWriters), "GOMEMLIMIT", "12MiB"), Meanwhile: Rolls, Through: takeover, Within: 20 * time.Second, Writes: 2, Blind: true, Recovers: takeover,
		},
		{
			Name: "the disk with the leader's log is full, and two nodes are replaced", Part: limits, Fault: limited(theLeader, pair.FileSize, 1), Meanwhile: Rolls,
			Through: takeover + follow, Within: 10 * time.Second, Writes: 2, Blind: true, Recovers: takeover,
		},
		{
			Name: "the disk with the inventory's log is full, and two nodes are replaced", Part: limits, Fault: limited(theInventory, pair.FileSize, 1), Meanwhile: Rolls,
			Through: 10 * time.Second, Within: 10 * time.Second, Writes: 2,
		},
	}
}

// linkBroken breaks the connections of the link; new ones may be made.
func linkBroken() Fault {
	return inSteps(func(_ context.Context, s *Scene, _ *steps) error { return s.relink() })
}
