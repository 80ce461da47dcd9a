package applier

import (
	"log/slog"
	"testing"

	"github.com/slicefeed/slicefeed/services/writer/history"
)

func TestWarningThatEndedWhileAnotherReplicaLedIsReportedAgain(t *testing.T) {
	shrink, trust := Warning{Reason: "Shrink", About: "blue"}, Warning{Reason: "Trust", About: "green"}
	for name, tt := range map[string]struct {
		standby [][]Warning // what is in force at each decision while another replica leads
		want    int         // Events in all, after the first term's two
	}{
		"it went on":                     {[][]Warning{{shrink, trust}}, 0},
		"one ended":                      {[][]Warning{{trust}}, 1},
		"one ended and began again":      {[][]Warning{{trust}, {shrink, trust}}, 1},
		"both ended":                     {[][]Warning{{}, {shrink}}, 2},
		"the same guard, another source": {[][]Warning{{{Reason: "Shrink", About: "green"}, trust}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var reported history.Log
			r := NewReporter(ReporterConfig{Logger: slog.New(slog.DiscardHandler), History: &reported})
			r.Now(shop, []Warning{shrink, trust})
			for _, warnings := range tt.standby {
				r.End(shop, warnings)
			}
			if _, events := reported.Recent(nil); len(events) != 2 {
				t.Errorf("a standby reports: %+v", events)
			}
			r.Now(shop, []Warning{shrink, trust})
			if _, events := reported.Recent(nil); len(events) != 2+tt.want {
				t.Errorf("%d Events in the next term, want %d: %+v", len(events)-2, tt.want, events)
			}
		})
	}
}
