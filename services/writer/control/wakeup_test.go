package control

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/services/writer/events"
	"github.com/slicefeed/slicefeed/services/writer/history"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// reportingFeed reports something new right after its snapshot was read for the first time.
type reportingFeed struct {
	Feed

	report   func()
	reported bool
}

func (f *reportingFeed) Snapshot() subscriber.Snapshot {
	s := f.Feed.Snapshot()
	if !f.reported {
		f.reported = true
		f.report()
	}
	return s
}

func TestReportThatArrivesDuringADecisionWakesTheTarget(t *testing.T) {
	o := newOffice(t, &elected{})
	c := o.control(targets.Key{Namespace: "web", Name: "blue"}, o)
	c.sourceNames.Store(&[]string{}) // the Service used other sources until now
	c.sources["default"] = Source{Name: "default", Feed: &reportingFeed{Feed: c.sources["default"].Feed, report: func() {
		if c.rests("default") { // as Controls.Run does for each report
			c.wakeUp()
		}
	}}}
	c.judge(targets.Resolution{Relevant: true, Target: targets.Target{Key: c.key, Settings: targets.Settings{Sources: []string{"default"}}}}, time.Now())
	select {
	case <-c.changed:
	default:
		t.Error("the target waits for the source's next report, though its decision rests upon an older one")
	}
}

// replica leads in the given term; 0: another one leads.
type replica struct {
	elected

	term int
}

func (r *replica) Term() int     { return r.term }
func (r *replica) Leading() bool { return r.term > 0 }

func TestGuardThatActsAgainIsReportedThoughItEndedWhileAnotherReplicaLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease, plain := &replica{term: 1}, service("blue", "default")
		halted := plain.DeepCopy()
		halted.Annotations = map[string]string{"slicefeed.dev/paused": "true"}
		o := newOffice(t, lease, plain)
		var reported history.Log
		o.reporter = events.NewReporter(events.Config{Logger: slog.New(slog.DiscardHandler), History: &reported})
		o.run(t)
		for _, step := range []struct {
			what string
			term int
			svc  *corev1.Service
			want int // Events so far
		}{
			{"the episode begins", 1, halted, 1},
			{"another replica leads when it ends", 0, plain, 1},
			{"and when it begins again", 0, halted, 1},
		} {
			lease.term = step.term
			o.put(t, step.svc)
			if _, all := reported.Recent(nil); len(all) != step.want {
				t.Errorf("%s: %d Events, want %d", step.what, len(all), step.want)
			}
		}
		lease.term = 2
		halted = halted.DeepCopy()
		halted.Annotations["example.org/a"] = "any change"
		o.put(t, halted)
		if _, all := reported.Recent(nil); len(all) != 2 {
			t.Errorf("this replica leads again during the second episode: %d Events, want 2", len(all))
		}
	})
}
