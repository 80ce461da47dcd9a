package reconciler

import (
	"fmt"

	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/report"
)

func (r *Reconciler) preview(s *state) report.Preview {
	p := report.Preview{Key: s.key, View: s.basis.view, Decision: s.decision}
	if !p.Managed() {
		return p
	}
	p.Desired = r.desiredOf(&s.basis.view, s.decision)
	for _, request := range s.probed { // as the decision has it: a probe may have passed since
		if status, _ := s.basis.input.Probe(request.Key.Address, request.Key.Port); status.Health == probe.Pending {
			p.PendingProbes++
		}
	}
	for _, snapshot := range s.basis.snapshots {
		if !snapshot.SyncedInStream {
			p.Unsynced = fmt.Errorf("source %s did not sync (%s)", snapshot.FeedName(), snapshot.NotSyncedReason())
		}
	}
	return p
}
