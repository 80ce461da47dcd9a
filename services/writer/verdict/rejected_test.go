package verdict

import (
	"strings"
	"testing"
)

func TestRejectedServiceFollowsItsProbesAndNothingElse(t *testing.T) {
	w := newWorld(t, 4)
	w.in.Rejected = true
	w.report("blue", 1, NotReady)
	w.report("blue", 3, Draining)
	w.unlist("blue", 2)
	w.report("blue", 4, Ready) // new
	w.probe(4, Passing)
	w.see("what the source reports changes nothing", "0:ready 1:ready 2:ready 3:ready")
	w.wantGuards()
	w.probe(0, Failing)
	w.see("what fails is out", "0:out 1:ready 2:ready 3:ready")
	if reason := w.endpoint(addr(1)).Reason; !strings.Contains(reason, "the Service is rejected") {
		t.Errorf("the reason is %q", reason)
	}
	w.wantGuards()
	w.probe(0, Passing)
	w.see("and ready again when it passes", "0:ready 1:ready 2:ready 3:ready")
	w.fail(w.now.Add(1), 0, 1, 2, 3)
	w.see("the last ones stay: the prober is the likelier fault", "0:ready 1:ready 2:ready 3:ready")
	w.wantGuards("panic 4")
	if len(w.d.NeedObservations) > 0 {
		t.Errorf("observations of %v are requested", w.d.NeedObservations)
	}
	for i := range 5 {
		w.probe(i, Passing)
	}
	w.in.Rejected = false
	w.see("managed again, the source counts", "0:ready 1:ready 3:drain 4:ready")
}

func TestRejectedServiceWhoseSourceIsNotSyncedYetHasNoGuardOfItsOwn(t *testing.T) {
	w := newWorld(t, 2)
	w.in.Rejected, w.source("blue").EverSynced = true, false
	w.probe(0, Failing)
	w.see("what fails is out", "0:out 1:ready")
	w.wantGuards()
}
