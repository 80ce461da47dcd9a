package verdict

import (
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/probe"
)

// What one decision leaves to the next: the source of an address that no slice lists, what a failure took, what
// a window granted, and the last reports.

func TestWhoseAnAddressIsThatIsNotHeld(t *testing.T) {
	for _, tt := range []struct {
		name string
		past func(*world) // of node 5, which both sources report by then
		want string       // when blue is lost and 5 passes
	}{
		{"one that was never listed has no source", func(w *world) {
			w.report("blue", 5, Ready)
			w.see("it is pending", "0:ready")
		}, "0:ready 5@green:ready"},
		{"one that its source left out has none", func(w *world) {
			w.hold(5, "blue", ready)
			w.decide()
			w.report("blue", 5, Ready)
		}, "0:ready 5@green:ready"},
		{"one that the slices have lost has none", func(w *world) {
			w.hold(5, "blue", ready)
			w.report("blue", 5, Ready)
			w.see("it is listed", "0:ready 5:ready")
			w.in.Current = w.in.Current[:1]
		}, "0:ready 5@green:ready"},
		{"one that fails and is not listed keeps its source, which has not reported it", func(w *world) {
			w.hold(5, "blue", ready)
			w.source("blue").EverSynced = false
			w.report("green", 5, Ready)
			w.probe(5, probe.Failing)
			w.see("it fails", "0:ready")
		}, "0:ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.in.Limits.ListUnready = false
			w.in.Sources = append(w.in.Sources, trusted("green"))
			tt.past(w)
			w.source("blue").Connected = false
			w.report("green", 5, Ready)
			w.probe(5, probe.Passing)
			w.see("blue is lost", tt.want)
		})
	}
}

func TestWhatOneSourcesWindowLetGoOfAnothersHasNot(t *testing.T) {
	for name, state := range map[string]State{"ready": Ready, "in a state that we do not know": Unknown} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.shrinks()
			w.in.Sources = append(w.in.Sources, trusted("green"))
			for n := 4; n < 7; n++ {
				w.hold(n, "green", ready)
				w.report("green", n, Ready)
				w.probe(n, probe.Passing)
			}
			w.unlist("green", 4)
			w.see("the one of green's that may go", "0:ready 1:ready 5@green:ready 6@green:ready")
			w.unlist("blue", 0)
			w.unwritten("the one of blue's that may", "1:ready 5@green:ready 6@green:ready")
			w.report("green", 0, state)
			w.see("it is green's by now", "0@green:ready 1:ready 5@green:ready 6@green:ready")
			w.unlist("green", 0)
			w.see("of which no more may go", "0@green:ready 1:ready 5@green:ready 6@green:ready")
		})
	}
}

// One of four has left in a window that is open still, and one more could.
func TestWhatBecomesOfAWindow(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*world)
		want   string
	}{
		{"who leads no more releases none in it", func(w *world) { w.in.LeadingSince = time.Time{} }, "1:ready 2:ready 3:ready"},
		{"a new leader releases none in it", func(w *world) { w.in.LeadingSince = w.now }, "1:ready 2:ready 3:ready"},
		{"and then needs no newer observation", func(w *world) {
			w.pass(time.Second)
			w.in.LeadingSince = w.now
			w.pass(time.Minute)
		}, "2:ready 3:ready"},
		{"a window that is made longer may make us a new leader again", func(w *world) { w.in.Limits.ShrinkWindow = 2 * time.Hour }, "1:ready 2:ready 3:ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 4)
			w.shrinks()
			w.unlist("blue", 0)
			w.see("one of two that may", "1:ready 2:ready 3:ready")
			tt.change(w)
			w.unlist("blue", 1)
			w.see("one more leaves", tt.want)
		})
	}
}

// A writer that stood still receives several reports and the loss of the link before it decides again. The last
// report while the source was trusted counts, though no decision was made on it.
func TestTheLastTrustedReportCountsThoughNoDecisionWasMadeOnIt(t *testing.T) {
	member := func(state State) []Member { return []Member{{Address: addr(1), Name: "node-1", State: state}} }
	for _, tt := range []struct {
		name   string
		before State    // of node 1, when the last decision on a trusted source was made
		report []Member // of node 1, after it and before the link was lost
		others bool     // node 0 is in that report too
		want   string   // when node 1, which is not ready, passes
	}{
		{"ready after draining", Draining, member(Ready), true, "0:ready 1:ready"},
		{"draining after ready", Ready, member(Draining), true, "0:ready 1:drain"},
		{"not ready after draining", Draining, member(NotReady), true, "0:ready 1:ready"},
		{"absent after ready", Ready, nil, true, "0:ready"},
		{"an empty report counts only when it is confirmed", Draining, nil, false, "0:ready 1:drain"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.report("blue", 1, tt.before)
			w.fail(w.now, 1)
			w.see("1 fails", "0:ready 1:out")
			blue := w.source("blue")
			if tt.others {
				blue.Trusted = append(blue.Trusted, Member{Address: addr(0), Name: "node-0", State: Ready})
			}
			blue.Trusted = append(blue.Trusted, tt.report...)
			blue.Members, blue.Connected = blue.Trusted, false
			w.probe(1, probe.Passing)
			w.see("the link is lost, and 1 passes", tt.want)
		})
	}
}

// A report of a source that was not trusted is no trusted report, though it is the newest.
func TestAReportWhileMembershipIsDegradedIsNoTrustedReport(t *testing.T) {
	w := newWorld(t, 2)
	w.fail(w.now, 1)
	w.see("1 fails", "0:ready 1:out")
	blue := w.source("blue")
	blue.Trusted = blue.Members
	w.report("blue", 1, Draining)
	blue.MembershipSynced = false
	w.probe(1, probe.Passing)
	w.see("membership is degraded, and 1 passes", "0:ready 1:ready")
}
