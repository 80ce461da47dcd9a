package reconciler

import (
	"fmt"

	problem "github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Preview is a decision about one target that is not written.
type Preview struct {
	View targets.Resolution // that it rests on

	// Of a target that is managed:
	Desired       planner.Desired
	Decision      verdict.Decision
	Problems      []*problem.Problem
	PendingProbes int   // endpoints without a probe status yet
	Unsynced      error // names a source that is not synced yet
}

// Managed reports whether there is anything to decide about the target.
func (p *Preview) Managed() bool {
	return p.View.Relevant && !p.View.OptedOut && p.View.Rejection == nil
}

func (r *Reconciler) preview(s *state, view targets.Resolution, snapshots []subscriber.Snapshot, input verdict.Input) Preview {
	p := Preview{View: view, Decision: s.decision}
	if !p.Managed() {
		return p
	}
	p.Desired = r.desiredOf(view, s.decision)
	p.Problems = report.OfService(view, &endpoints.Target{
		Namespace: view.Target.Namespace,
		Service:   view.Target.TargetName(),
		State:     endpoints.Managed,
		Sources:   snapshots,
		Decision:  s.decision,
	}, false)
	for _, request := range s.probed { // as the decision has it: a probe may have passed since
		if probe, _ := input.Probe(request.Key.Address, request.Key.Port); probe.Status == verdict.Pending {
			p.PendingProbes++
		}
	}
	for i := range snapshots {
		if !snapshots[i].SyncedInStream {
			p.Unsynced = fmt.Errorf("source %s did not sync (%s)", snapshots[i].FeedName(), snapshots[i].NotSyncedReason())
		}
	}
	return p
}
