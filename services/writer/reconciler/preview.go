package reconciler

import (
	"fmt"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/inputs"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
	"github.com/slicefeed/slicefeed/services/writer/warnings"
)

// Preview is what a writer that takes over now would decide about one target.
type Preview struct {
	View targets.Resolution // that it rests on

	// Of a target that is managed:
	Desired       planner.Desired
	Decision      verdict.Decision // without memory of earlier ones, as after a start
	Warnings      []events.Warning
	PendingProbes int // endpoints without a probe status yet
}

// Managed reports whether there is anything to decide about the target.
func (p *Preview) Managed() bool {
	return p.View.Relevant && !p.View.OptedOut && p.View.Rejection == nil
}

// Preview decides about a target as a leader does, and writes nothing. Its error names a source that is not synced yet.
func (r *Reconciler) Preview(key targets.Key, now time.Time) (Preview, error) {
	s := r.state(key)
	p := Preview{View: r.Targets.Get(key)}
	if !p.Managed() {
		return p, nil
	}
	snapshots := r.snapshots(key, p.View)
	for i := range snapshots {
		if !snapshots[i].SyncedInStream {
			return p, fmt.Errorf("source %s did not sync (%s)", snapshots[i].FeedName(), snapshots[i].NotSyncedReason())
		}
	}
	unusable := r.followPorts(s, &p.View, snapshots)
	s.term.since = now
	current := inputs.CurrentEndpoints(planner.CurrentEndpoints(p.View.Target.Desired(), p.View.Slices))
	for range 3 { // what is probed follows from a decision, and the decision from the probes
		input := r.input(s, p.View, snapshots, current, unusable)
		r.keepPorts(&p.View, p.View.Slices, input.Sources)
		_, p.Decision = verdict.Decide(verdict.Memory{}, input, now)
		s.decision = p.Decision
		changed := r.setProbes(key, s, p.View, current)
		p.PendingProbes = 0
		for _, request := range s.probed { // as the decision has it: a probe may have passed since
			if probe, _ := input.Probe(request.Key.Address); probe.Status == verdict.Pending {
				p.PendingProbes++
			}
		}
		if !changed {
			break
		}
	}
	p.Desired = p.View.Target.Desired()
	p.Desired.Endpoints = listedEndpoints(p.Decision.Endpoints, p.View.Target.KeptPorts)
	p.Warnings = warnings.OfTarget(p.View, snapshots)
	return p, nil
}
