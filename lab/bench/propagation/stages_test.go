package propagation

import (
	"bytes"
	"context"
	"runtime/trace"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

var threeStages = []stage{{until: "a"}, {until: "b"}, {}}

func TestStagesSumUpToTheWhole(t *testing.T) {
	for _, tt := range []struct {
		name  string
		marks []mark
		want  []time.Duration
	}{
		{"each milestone once", []mark{{at(11), "a"}, {at(14), "b"}}, []time.Duration{1e6, 3e6, 6e6}},
		{"in any order", []mark{{at(14), "b"}, {at(11), "a"}}, []time.Duration{1e6, 3e6, 6e6}},
		{"twice: the first counts", []mark{{at(11), "a"}, {at(12), "a"}, {at(14), "b"}, {at(15), "b"}}, []time.Duration{1e6, 3e6, 6e6}},
		{"what came before is of the sample before", []mark{{at(1), "a"}, {at(2), "b"}, {at(11), "a"}, {at(14), "b"}}, []time.Duration{1e6, 3e6, 6e6}},
		{"a later milestone before an earlier one is another change's", []mark{{at(10), "b"}, {at(11), "a"}, {at(14), "b"}}, []time.Duration{1e6, 3e6, 6e6}},
		{"one is missing", []mark{{at(11), "a"}}, nil},
		{"one came after the end", []mark{{at(11), "a"}, {at(21), "b"}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := sample{at(10), at(20)}
			kept, durations := split([]sample{s}, tt.marks, threeStages)
			if tt.want == nil {
				if len(kept) > 0 {
					t.Errorf("it was kept: %v", durations)
				}
				return
			}
			if len(durations) != 1 {
				t.Fatal("it was not kept")
			}
			if diff := cmp.Diff(tt.want, durations[0]); diff != "" {
				t.Error(diff)
			}
			if stages, whole := typical(kept, durations); whole != s.took() || len(stages) != 3 {
				t.Errorf("typical are %v, together %s: want %s", stages, whole, s.took())
			}
		})
	}
}

func TestTheTypicalIsOfTheMiddle(t *testing.T) {
	var samples []sample
	var durations [][]time.Duration
	for i := range 21 { // the outer ones are far off
		took := 5 * time.Millisecond
		if i > 10 {
			took = time.Hour
		} else if i < 10 {
			took = time.Millisecond
		}
		samples, durations = append(samples, sample{start, start.Add(took)}), append(durations, []time.Duration{took})
	}
	if _, whole := typical(samples, durations); whole < 3*time.Millisecond || whole > 5*time.Millisecond {
		t.Errorf("the typical takes %s", whole)
	}
}

func TestMilestonesOfATraceBearTheMachinesTime(t *testing.T) {
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		t.Skip(err) // go test -trace has begun one, and there is but one at a time
	}
	before := time.Now()
	trace.Log(context.Background(), category, "watch event")
	trace.Log(context.Background(), "another", "thing")
	trace.Log(context.Background(), category, "delta published")
	after := time.Now()
	trace.Stop()
	marks, err := milestones(&out)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	const slack = time.Millisecond // a clock is read now and then, and between two readings reckoned
	for _, m := range marks {
		names = append(names, m.what)
		if m.at.Before(before.Add(-slack)) || m.at.After(after.Add(slack)) {
			t.Errorf("%s was passed at %s, which is not between %s and %s", m.what, m.at, before, after)
		}
	}
	if diff := cmp.Diff([]string{"watch event", "delta published"}, names); diff != "" {
		t.Error(diff)
	}
}
