package faults

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// The parts whose processes, files and limits are concerned, as the table names them.
const (
	anInventory = "inventory"
	secondOne   = "second inventory"
	aWriter     = "writer"
	bothHalves  = "both halves"
)

// killed ends processes as the loss of their machine would. They are started again at the lift.
func killed(who who) Fault { return ended(who, (*pair.Half).Kill) }

// terminated ends processes in order, as a rollout does.
func terminated(who who) Fault {
	return ended(who, func(half *pair.Half) error { return half.Terminate(20 * time.Second) })
}

func ended(who who, end func(*pair.Half) error) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		halves, err := who(ctx, s)
		if err != nil {
			return err
		}
		for _, half := range halves {
			undo.then(half.Start)
			if err := end(half); err != nil {
				return err
			}
		}
		return nil
	})
}

// restarted kills processes and starts them again before anything changes: their memory is gone,
// an inventory's epoch is another one.
func restarted(who who) Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		halves, err := who(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, half := range halves {
			if err := errors.Join(half.Kill(), half.Launch()); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context) error {
			var errs []error
			for _, half := range halves {
				errs = append(errs, half.Ready(ctx))
			}
			return errors.Join(errs...)
		}, nil
	}
}

// crashing kills processes and starts them again, all the time.
func crashing(who who, lives time.Duration) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		halves, err := who(ctx, s)
		if err != nil {
			return err
		}
		for _, half := range halves {
			undo.then(half.Ready)
		}
		undo.ongoing(ctx, func(ctx context.Context) error {
			for _, half := range halves {
				if err := errors.Join(half.Kill(), half.Launch()); err != nil {
					return err
				}
			}
			wait(ctx, lives)
			return nil
		})
		return nil
	})
}

// frozen stops processes, their connections open, until the lift.
func frozen(who who) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		halves, err := who(ctx, s)
		if err != nil {
			return err
		}
		for _, half := range halves {
			if err := half.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
			undo.then(func(context.Context) error { return half.Signal(syscall.SIGCONT) })
		}
		return nil
	})
}

// starved gives processes no more than slices of time, as a machine does whose processors others have.
func starved(who who, runs, waits time.Duration) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		halves, err := who(ctx, s)
		if err != nil {
			return err
		}
		all := func(sig syscall.Signal) error {
			var errs []error
			for _, half := range halves {
				errs = append(errs, half.Signal(sig))
			}
			return errors.Join(errs...)
		}
		undo.then(func(context.Context) error { return all(syscall.SIGCONT) })
		undo.ongoing(ctx, func(ctx context.Context) error {
			if err := all(syscall.SIGSTOP); err != nil {
				return err
			}
			wait(ctx, waits)
			if err := all(syscall.SIGCONT); err != nil {
				return err
			}
			wait(ctx, runs)
			return nil
		})
		return nil
	})
}

// nothing is for rows whose change brings its own fault; the lift starts what that has ended.
func nothing() Fault {
	return func(context.Context, *Scene) (func(context.Context) error, error) {
		return func(context.Context) error { return nil }, nil
	}
}

// rollsBut replaces two nodes, and something befalls a process after the first.
func rollsBut(name string, befalls Fault) Change {
	return Change{Name: "two nodes are replaced, and in between " + name, Writes: 12, steps: true, make: func(ctx context.Context, s *Scene) error {
		old := s.Members(Default)[:2]
		if err := s.replace(ctx, old[0]); err != nil {
			return err
		}
		if _, err := befalls(ctx, s); err != nil { // the scene is set up again after the row
			return err
		}
		return s.replace(ctx, old[1])
	}}
}

// follow is how long a change may take that nothing is in the way of, on a machine that has much to do.
const follow = 3 * time.Second

func processRows() []Row {
	const succeeds = takeover + follow
	return append([]Row{
		{Name: "the inventory is killed", Part: anInventory, Fault: killed(theInventory), Within: follow},
		{Name: "the inventory is killed, and a node joins", Part: anInventory, Fault: killed(theInventory), Meanwhile: Joins, Within: back},
		{
			Name: "the inventory is killed, and a node dies", Part: anInventory, Fault: killed(theInventory), Meanwhile: Dies,
			Through: noticed, Within: follow,
		},
		{Name: "the inventory is killed, and a Node is deleted", Part: anInventory, Fault: killed(theInventory), Meanwhile: Leaves, Within: back},
		{
			Name: "the inventory is restarted with another epoch, and a Node is deleted", Part: anInventory, Fault: restarted(theInventory), Meanwhile: Leaves,
			Through: onward, Within: follow,
		},
		{
			Name: "the inventory crashes every second and a half, and a node drains", Part: anInventory, Fault: crashing(theInventory, 1500*time.Millisecond), Meanwhile: Drains,
			Lasts: 5 * time.Second, Within: back,
		},
		{Name: "the inventory ends in order, and two nodes are replaced", Part: anInventory, Fault: terminated(theInventory), Meanwhile: Rolls, Within: back, Writes: 4},
		{
			Name: "the inventory is killed in the middle of a rolling replacement, and comes back", Part: anInventory, Fault: nothing(),
			Meanwhile: rollsBut("the inventory is killed and started again", restarted(theInventory)), Through: 15 * time.Second, Within: follow,
		},
		{
			Name: "the inventory is frozen for five seconds, which is less than three heartbeats, and a node joins", Part: anInventory, Fault: frozen(theInventory), Meanwhile: Joins,
			Lasts: 5 * time.Second, Within: 5 * time.Second,
		},
		{
			Name: "the inventory is frozen until the link is given up, and a node dies", Part: anInventory, Fault: frozen(theInventory), Meanwhile: Dies,
			Lasts: 16 * time.Second, Through: noticed, Within: back,
		},
		{
			Name: "the inventory runs a tenth of the time, and two nodes are replaced", Part: anInventory, Fault: starved(theInventory, 20*time.Millisecond, 180*time.Millisecond), Meanwhile: Rolls,
			Through: onward, Within: follow, Writes: 2,
		},
		{
			Name: "the inventory is killed, the writers are led to its other replica, and two nodes are replaced", Part: anInventory,
			Fault: all(killed(theInventory), moved(of(links, both))), Meanwhile: Rolls, Through: onward, Within: back, Writes: 2,
		},
		{
			Name: "both replicas of the inventory are killed, and a Node is deleted", Part: anInventory, Fault: killed(these(theInventory, theReplica)), Meanwhile: Leaves,
			Within: back,
		},
		{
			Name: "the second inventory is killed, and a node of its cluster dies", Part: secondOne, Fault: killed(theSecond), Meanwhile: SecondDies,
			Through: noticed, Within: back,
		},

		{Name: "the standby is killed, and a node joins", Part: aWriter, Fault: killed(theStandby), Meanwhile: Joins, Through: follow, Within: follow},
		{
			Name: "the leader ends in order, and two nodes are replaced", Part: aWriter, Fault: terminated(theLeader), Meanwhile: Rolls,
			Through: succeeds, Within: follow, Writes: 2, Blind: true,
		},
		{
			Name: "the leader is frozen beyond its Lease, and thawed when the other leads: two leaders for a moment", Part: aWriter, Fault: frozen(theLeader), Meanwhile: Rolls,
			Through: succeeds, Within: follow, Writes: 2, Blind: true,
		},
		{
			Name: "the leader is frozen for three seconds, and a node joins", Part: aWriter, Fault: frozen(theLeader), Meanwhile: Joins,
			Lasts: 3 * time.Second, Within: follow, Blind: true,
		},
		{
			Name: "the leader runs a tenth of the time, and a node dies", Part: aWriter, Fault: starved(theLeader, 20*time.Millisecond, 180*time.Millisecond), Meanwhile: Dies,
			Through: 15 * time.Second, Within: follow, Writes: 4, Blind: true, Recovers: takeover,
		},
		{Name: "both writers are killed, and a node joins", Part: aWriter, Fault: killed(bothWriters), Meanwhile: Joins, Within: succeeds, Blind: true, Recovers: takeover},
		{Name: "both writers are killed, and a node dies", Part: aWriter, Fault: killed(bothWriters), Meanwhile: Dies, Within: succeeds, Blind: true, Recovers: takeover},
		{
			Name: "both writers crash every two seconds, and a node joins", Part: aWriter, Fault: crashing(bothWriters, 2*time.Second), Meanwhile: Joins,
			Lasts: 6 * time.Second, Within: succeeds, Blind: true, Recovers: takeover,
		},
		{
			Name: "the leader is killed in the middle of a rolling replacement", Part: aWriter, Fault: nothing(),
			Meanwhile: rollsBut("the leader is killed", killed(theLeader)), Through: succeeds, Within: follow, Blind: true,
		},

		{
			Name: "the leader and the inventory are killed at once, and a node joins", Part: bothHalves, Fault: killed(these(theLeader, theInventory)), Meanwhile: Joins,
			Within: succeeds, Blind: true, Recovers: takeover,
		},
		{
			Name: "the leader and the inventory are killed at once, and a node dies", Part: bothHalves, Fault: killed(these(theLeader, theInventory)), Meanwhile: Dies,
			Through: succeeds, Within: follow, Blind: true,
		},
		{
			Name: "all of them are killed at once, and a Node is deleted", Part: bothHalves,
			Fault: killed(these(theInventory, theReplica, theSecond, bothWriters)), Meanwhile: Leaves, Within: succeeds, Blind: true, Recovers: takeover,
		},
	}, leaderKilledRows(succeeds)...)
}

// leaderKilledRows kill the leader before each kind of change.
func leaderKilledRows(succeeds time.Duration) []Row {
	rows := []Row{{Name: "the leader is killed", Part: aWriter, Fault: killed(theLeader), Lasts: takeover, Within: follow, Blind: true}}
	for _, change := range []Change{Joins, Dies, Drains, Leaves, Rolls} {
		row := Row{
			Name: "the leader is killed, and " + change.Name, Part: aWriter, Fault: killed(theLeader), Meanwhile: change,
			Through: succeeds, Within: follow, Blind: true,
		}
		rows = append(rows, row)
	}
	return rows
}
