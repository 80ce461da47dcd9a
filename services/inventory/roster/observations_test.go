package roster

import (
	"testing"
	"time"
)

// A node that flaps faster than the cloud is listed raises "none ready" again and again: each observation may
// restart once for that, and has to complete nevertheless.
func TestObservationsCompleteWhileANodeFlapsFasterThanTheCloudIsListed(t *testing.T) {
	w := &world{t: t}
	w.play("ready")
	before := w.Status(w.now).Observation
	var verifyStarted, listStarted time.Time
	for second := range 300 {
		switch second % 4 {
		case 0:
			w.play("node a state=NOT_READY")
		case 2:
			w.play("node a state=READY")
		}
		if !verifyStarted.IsZero() && w.now.Sub(verifyStarted) >= time.Second {
			w.play("verified full started=-1s")
			verifyStarted = time.Time{}
		}
		if !listStarted.IsZero() && w.now.Sub(listStarted) >= 4*time.Second {
			w.play("listed started=-4s")
			listStarted = time.Time{}
		}
		a := w.NextActions(w.now)
		if a.Verify != NoVerification {
			verifyStarted = w.now
		}
		if a.List {
			listStarted = w.now
		}
		w.play("pass 1s")
	}
	if n := w.Status(w.now).Observation - before; n < 15 {
		t.Errorf("%d observations in five minutes, want one in 20 s at least", n)
	}
}
