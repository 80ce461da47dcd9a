package faults

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// killed ends processes as the loss of their machine would. They start again at the end of the fault.
func killed(who components) fault { return stopped(who, (*pair.Component).Kill) }

func stopped(who components, stop func(*pair.Component) error) fault {
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

func relaunch(component *pair.Component) error {
	return errors.Join(component.Kill(), component.Launch())
}

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

// undisturbed is how long a change may take that nothing delays, on a busy machine.
const undisturbed = 3 * time.Second
