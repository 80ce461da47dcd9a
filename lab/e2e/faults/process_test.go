package faults

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// killed ends processes as the loss of their machine would. They start again at the end of the fault.
func killed(who components) fault { return stopped(who, (*pair.Half).Kill) }

// terminated ends processes as a rollout does.
func terminated(who components) fault { return stopped(who, terminate) }

func stopped(who components, stop func(*pair.Half) error) fault {
	return func(r *run) {
		for _, component := range who(r) {
			r.onEnd(component.Start)
			r.must(stop(component))
		}
	}
}

// killedAndLaunched kills processes and starts them again before anything changes: their memory is gone, an inventory
// has another epoch.
func killedAndLaunched(who components) fault {
	return func(r *run) {
		for _, component := range who(r) {
			r.must(relaunch(component))
			r.onEnd(component.Ready)
		}
	}
}

func relaunch(component *pair.Half) error { return errors.Join(component.Kill(), component.Launch()) }

// crashing kills processes and starts them again, over and over.
func crashing(who components, uptime time.Duration) fault {
	return func(r *run) {
		all := who(r)
		for _, component := range all {
			r.onEnd(component.Ready)
		}
		r.repeat(func(ctx context.Context) error {
			for _, component := range all {
				if err := relaunch(component); err != nil {
					return err
				}
			}
			wait(ctx, uptime)
			return nil
		})
	}
}

// frozen stops processes, with their connections open, until the end of the fault.
func frozen(who components) fault {
	return func(r *run) {
		for _, component := range who(r) {
			r.must(component.Signal(syscall.SIGSTOP))
			r.onEnd(func(context.Context) error { return component.Signal(syscall.SIGCONT) })
		}
	}
}

// starved lets processes run for a tenth of the time, as a machine does whose processors others use.
func starved(who components) fault {
	return func(r *run) {
		all := who(r)
		signal := func(sig syscall.Signal) error {
			var errs []error
			for _, component := range all {
				errs = append(errs, component.Signal(sig))
			}
			return errors.Join(errs...)
		}
		r.onEnd(func(context.Context) error { return signal(syscall.SIGCONT) })
		r.repeat(func(ctx context.Context) error {
			if err := signal(syscall.SIGSTOP); err != nil {
				return err
			}
			wait(ctx, 180*time.Millisecond)
			if err := signal(syscall.SIGCONT); err != nil {
				return err
			}
			wait(ctx, 20*time.Millisecond)
			return nil
		})
	}
}

// whileReplaced has a process killed between the replacements of two nodes.
func whileReplaced(kill func(context.Context, *env) error) change {
	return change{name: "two nodes are replaced", writes: replacedWrites, takesTime: true, apply: func(ctx context.Context, e *env) error {
		old := e.nodesOf(first)[:2]
		if err := e.replaceNode(ctx, old[0]); err != nil {
			return err
		}
		if err := kill(ctx, e); err != nil { // the reset starts it again
			return err
		}
		return e.replaceNode(ctx, old[1])
	}}
}

func killLeader(ctx context.Context, e *env) error {
	leader, err := e.WaitLeading(ctx)
	if err != nil {
		return err
	}
	return leader.Kill()
}

func nothing(*run) {}

// undisturbed is how long a change may take that nothing delays, on a busy machine.
const undisturbed = 3 * time.Second

func processRows() []row {
	const succeeded = takeover + undisturbed
	return slices.Concat([]row{
		{kind: inventoryProcess, fault: "killed", inject: killed(theInventory), correctAfter: undisturbed},
		{kind: inventoryProcess, fault: "killed", inject: killed(theInventory), during: joins, correctAfter: retried},
		{
			kind:          inventoryProcess,
			fault:         "killed",
			inject:        killed(theInventory),
			during:        dies,
			correctDuring: detected,
			correctAfter:  undisturbed,
			short:         true,
		},
		{kind: inventoryProcess, fault: "killed", inject: killed(theInventory), during: deleted, correctAfter: retried},
		{
			kind:          inventoryProcess,
			fault:         "killed and started again, with another epoch",
			inject:        killedAndLaunched(theInventory),
			during:        deleted,
			correctDuring: slowed,
			correctAfter:  undisturbed,
		},
		{
			kind:         inventoryProcess,
			fault:        "killed every 1.5 s",
			inject:       crashing(theInventory, 1500*time.Millisecond),
			during:       drains,
			lasts:        5 * time.Second,
			correctAfter: retried,
		},
		{kind: inventoryProcess, fault: "terminated", inject: terminated(theInventory), during: replaced, correctAfter: retried},
		{
			kind: inventoryProcess, fault: "killed between two replacements, and started again", inject: nothing,
			during:        whileReplaced(func(_ context.Context, e *env) error { return relaunch(e.Inventory) }),
			correctDuring: 15 * time.Second, correctAfter: undisturbed,
		},
		{
			kind:         inventoryProcess,
			fault:        "frozen for 5 s, which is less than three heartbeats",
			inject:       frozen(theInventory),
			during:       joins,
			lasts:        5 * time.Second,
			correctAfter: 5 * time.Second,
		},
		{
			kind:          inventoryProcess,
			fault:         "frozen until the writers disconnect",
			inject:        frozen(theInventory),
			during:        dies,
			lasts:         16 * time.Second,
			correctDuring: detected,
			correctAfter:  retried,
		},
		{
			kind:          inventoryProcess,
			fault:         "runs a tenth of the time",
			inject:        starved(theInventory),
			during:        replaced,
			correctDuring: slowed,
			correctAfter:  undisturbed,
		},
		{
			kind:          inventoryProcess,
			fault:         "killed, and the writers use its other replica",
			inject:        together(killed(theInventory), movedToReplica(toInventory(bothWriters))),
			during:        replaced,
			correctDuring: slowed,
			correctAfter:  retried,
		},
		{
			kind:         inventoryProcess,
			fault:        "both replicas killed",
			inject:       killed(these(theInventory, theReplica)),
			during:       deleted,
			correctAfter: retried,
		},
		{
			kind:          inventoryProcess,
			fault:         "the second inventory killed",
			inject:        killed(theSecond),
			during:        secondDies,
			correctDuring: detected,
			correctAfter:  retried,
		},

		{
			kind:          writerProcess,
			fault:         "standby killed",
			inject:        killed(theStandby),
			during:        joins,
			correctDuring: undisturbed,
			correctAfter:  undisturbed,
		},
		{
			kind:          writerProcess,
			fault:         "leader terminated",
			inject:        terminated(theLeader),
			during:        replaced,
			correctDuring: succeeded,
			correctAfter:  undisturbed,
			noWrites:      true,
		},
		{
			kind: writerProcess, fault: "leader frozen until the standby leads: two leaders for a moment", inject: frozen(theLeader),
			during: replaced, correctDuring: succeeded, correctAfter: undisturbed, noWrites: true,
		},
		{
			kind:         writerProcess,
			fault:        "leader frozen for 3 s",
			inject:       frozen(theLeader),
			during:       joins,
			lasts:        3 * time.Second,
			correctAfter: undisturbed,
			noWrites:     true,
			short:        true,
		},
		{
			kind: writerProcess, fault: "leader runs a tenth of the time", inject: starved(theLeader),
			during: dies, correctDuring: 15 * time.Second, correctAfter: undisturbed, extraWrites: 4, noWrites: true, takeover: takeover,
		},
		{
			kind:         writerProcess,
			fault:        "both killed",
			inject:       killed(bothWriters),
			during:       joins,
			correctAfter: succeeded,
			noWrites:     true,
			takeover:     takeover,
		},
		{
			kind:         writerProcess,
			fault:        "both killed",
			inject:       killed(bothWriters),
			during:       dies,
			correctAfter: succeeded,
			noWrites:     true,
			takeover:     takeover,
		},
		{
			kind:         writerProcess,
			fault:        "both killed every 2 s",
			inject:       crashing(bothWriters, 2*time.Second),
			during:       joins,
			lasts:        6 * time.Second,
			correctAfter: succeeded,
			noWrites:     true,
			takeover:     takeover,
		},
		{
			kind:          writerProcess,
			fault:         "leader killed between two replacements",
			inject:        nothing,
			during:        whileReplaced(killLeader),
			correctDuring: succeeded,
			correctAfter:  undisturbed,
			noWrites:      true,
		},
		{
			kind:         writerProcess,
			fault:        "leader and inventory killed",
			inject:       killed(these(theLeader, theInventory)),
			during:       joins,
			correctAfter: succeeded,
			noWrites:     true,
			takeover:     takeover,
		},
		{
			kind:          writerProcess,
			fault:         "leader and inventory killed",
			inject:        killed(these(theLeader, theInventory)),
			during:        dies,
			correctDuring: succeeded,
			correctAfter:  undisturbed,
			noWrites:      true,
		},
		{
			kind:         writerProcess,
			fault:        "all writers and inventories killed",
			inject:       killed(these(theInventory, theReplica, theSecond, bothWriters)),
			during:       deleted,
			correctAfter: succeeded,
			noWrites:     true,
			takeover:     takeover,
		},
		{
			kind:         writerProcess,
			fault:        "leader killed",
			inject:       killed(theLeader),
			lasts:        takeover,
			correctAfter: undisturbed,
			noWrites:     true,
		},
	}, leaderKilledRows(succeeded))
}

// leaderKilledRows kill the leader before each kind of change.
func leaderKilledRows(succeeded time.Duration) []row {
	var all []row
	for _, c := range []change{joins, dies, drains, deleted, replaced} {
		all = append(
			all,
			row{
				kind:          writerProcess,
				fault:         "leader killed",
				inject:        killed(theLeader),
				during:        c,
				correctDuring: succeeded,
				correctAfter:  undisturbed,
				noWrites:      true,
			},
		)
	}
	return all
}

const (
	inventoryProcess = "inventory process"
	writerProcess    = "writer process"
)
