package control

import (
	"testing"
	"time"

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
	c.hears.Store(&[]string{}) // the Service used other sources until now
	c.sources["default"] = Source{Name: "default", Feed: &reportingFeed{Feed: c.sources["default"].Feed, report: func() {
		if c.rests("default") { // as Controls.Run does for each report
			c.poke()
		}
	}}}
	c.judge(targets.View{Ours: true, Target: targets.Target{Key: c.key, Settings: targets.Settings{Sources: []string{"default"}}}}, time.Now())
	select {
	case <-c.news:
	default:
		t.Error("the target waits for the source's next report, though its decision rests upon an older one")
	}
}
