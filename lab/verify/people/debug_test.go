package people

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// logLine is what a line of a component's log says about the way of a change.
type logLine struct {
	Level, Msg, Node, State, Address, Verdict, Service, Slice, Epoch, Library string

	Revision uint64
}

func logTime(raw string) time.Time {
	var line struct{ Time time.Time }
	_ = json.Unmarshal([]byte(raw), &line) // a line that was cut off has none
	return line.Time
}

// parseLog returns the lines of a component's own code, in the order of their times: of two goroutines that log at the
// same time, the later one may write first. A repeated line counts once: a decision is repeated while its write is in
// progress.
func parseLog(text string) (lines []logLine) {
	sorted := slices.SortedStableFunc(strings.Lines(text), func(a, b string) int { return logTime(a).Compare(logTime(b)) })
	for _, raw := range sorted {
		var line logLine
		if json.Unmarshal([]byte(raw), &line) == nil && line.Library == "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestDebugLogsFollowChange(t *testing.T) {
	for _, level := range []string{"info", "debug"} {
		t.Run(level, func(t *testing.T) {
			settings := map[string]string{"LOG_LEVEL": level}
			s := e2e.New(t, e2e.Options{Inventory: settings, Writer: settings})
			s.StartAll()
			worker := s.Join(2)[0]
			writer := s.Writers[0]
			s.Until(
				"the write of both workers is logged",
				func() bool { return strings.Contains(s.LogOf(writer), `"slice":"shop-slicefeed","endpoints":2}`) },
			)
			before := []int{len(s.LogOf(s.Inventory)), len(s.LogOf(writer))}
			s.Must(worker.Drain(s.Ctx(), true))
			s.Await("it drains", pair.Are(pair.Draining, worker.Address))
			s.Until("the write is logged", func() bool { return strings.Contains(s.LogOf(writer)[before[1]:], "slice written") })
			inventoryLog, writerLog := s.LogOf(s.Inventory)[before[0]:], s.LogOf(writer)[before[1]:]
			t.Logf("inventory:\n%s\nwriter:\n%s", inventoryLog, writerLog)

			var inventoryWant, writerWant []logLine
			published, applied := parseLog(inventoryLog), parseLog(writerLog)
			name, service := worker.Name, pair.Namespace+"/"+pair.Service
			if level == "debug" {
				inventoryWant = []logLine{
					{Level: "DEBUG", Msg: "update received", Node: name, State: "draining"},
					{Level: "DEBUG", Msg: "node resolved", Node: name, State: "draining", Address: worker.Address.String()},
					{Level: "DEBUG", Msg: "delta published"},
				}
				writerWant = []logLine{
					{Level: "DEBUG", Msg: "delta applied"},
					{Level: "DEBUG", Msg: "decision", Service: service, Address: worker.Address.String(), Verdict: "drain"},
					{Level: "DEBUG", Msg: "plan", Service: service},
					{Level: "DEBUG", Msg: "write", Service: service, Slice: s.Slice().Name},
				}
				if len(published) == len(inventoryWant) && len(applied) > 0 { // the delta has the same cursor in both
					if last := published[len(published)-1]; last.Revision == 0 || last.Revision != applied[0].Revision ||
						last.Epoch != applied[0].Epoch {
						t.Errorf("published %+v, applied %+v", last, applied[0])
					}
				}
			}
			writerWant = append(writerWant, logLine{Level: "INFO", Msg: "slice written", Slice: s.Slice().Name})
			for _, lines := range [][]logLine{published, applied} {
				for i := range lines {
					lines[i].Epoch, lines[i].Revision = "", 0
				}
			}
			if d := cmp.Diff(inventoryWant, published); d != "" {
				t.Errorf("inventory (-want +got):\n%s", d)
			}
			if d := cmp.Diff(writerWant, applied); d != "" {
				t.Errorf("writer (-want +got):\n%s", d)
			}
		})
	}
}
