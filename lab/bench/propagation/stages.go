package propagation

import (
	"cmp"
	"slices"
	"time"
)

// sample is one change: when the patch was sent, and when its event was seen.
type sample struct{ began, ended time.Time }

func (s sample) took() time.Duration { return s.ended.Sub(s.began) }

// mark is a milestone that was passed.
type mark struct {
	at   time.Time
	what string
}

// stage is what lies between a milestone and the one before it, of which the first is the patch.
type stage struct {
	until string // the milestone that ends it; empty: the watch event
	name  string
}

// The stages, in order. That the write was answered ends none: the watch event does not wait for it.
var (
	pairStages = []stage{
		{"watch event", "the secured API server takes the patch, and sends the watch event"},
		{"delta published", "inventory: roster, feed"},
		{"delta sent", "inventory: stream"},
		{"delta received", "link: gRPC with mutual TLS, from process to process"},
		{"delta applied", "writer: checks, view"},
		{"decision", "writer: verdict"},
		{"plan", "writer: plan"},
		{"", "the consuming API server takes the write, and sends the watch event"},
	}
	floorStages = []stage{pairStages[0], {"plan", "floor: a deep copy"}, pairStages[7]}
)

// split cuts samples into stages: durations[i][j] is what sample i spent in stage j. Samples
// in which some milestone was not passed are left out.
func split(samples []sample, marks []mark, stages []stage) (kept []sample, durations [][]time.Duration) {
	marks = slices.SortedStableFunc(slices.Values(marks), func(a, b mark) int { return a.at.Compare(b.at) })
	for _, s := range samples {
		from, _ := slices.BinarySearchFunc(marks, s.began, func(m mark, t time.Time) int { return m.at.Compare(t) })
		if took := cut(s, marks[from:], stages); took != nil {
			kept, durations = append(kept, s), append(durations, took)
		}
	}
	return kept, durations
}

// cut is split for one sample and what was passed since it began; nil: not all was.
func cut(s sample, marks []mark, stages []stage) []time.Duration {
	took, at := make([]time.Duration, 0, len(stages)), s.began
	for _, stage := range stages {
		end := s.ended
		if stage.until != "" {
			i := slices.IndexFunc(marks, func(m mark) bool { return m.what == stage.until })
			if i < 0 || marks[i].at.After(s.ended) {
				return nil
			}
			end, marks = marks[i].at, marks[i+1:]
		}
		took, at = append(took, end.Sub(at)), end
	}
	return took
}

// typical is the mean of each stage over the tenth of the samples whose whole is nearest to the
// median. So the stages sum up to the whole, which the medians of stages do not.
func typical(samples []sample, durations [][]time.Duration) (stages []time.Duration, whole time.Duration) {
	order := make([]int, len(samples))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(samples[a].took(), samples[b].took()) })
	n := max(1, len(order)/10)
	stages = make([]time.Duration, len(durations[0]))
	for _, i := range order[(len(order)-n)/2:][:n] {
		for j, d := range durations[i] {
			stages[j] += d / time.Duration(n)
		}
	}
	for _, d := range stages {
		whole += d
	}
	return stages, whole
}
