package reconciler

import (
	"fmt"

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

func (r *Reconciler) preview(
	key targets.Key,
	s *state,
	view targets.Resolution,
	snapshots []subscriber.Snapshot,
	input verdict.Input,
) report.Preview {
	p := report.Preview{Key: key, View: view, Decision: s.decision}
	if !p.Managed() {
		return p
	}
	p.Desired = r.desiredOf(view, s.decision)
	for _, request := range s.probed { // as the decision has it: a probe may have passed since
		if status, _ := input.Probe(request.Key.Address, request.Key.Port); status.Health == probe.Pending {
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
