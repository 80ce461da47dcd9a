package churn

import (
	"fmt"
	"strconv"

	"github.com/slicefeed/slicefeed/lab/bench/report"
)

// found is all that was counted.
type found struct {
	comparisons []comparison
	rollings    []rolling
}

func (f *found) report() report.Report {
	changes := report.Table{
		Title:   "One change, from the same slices:",
		Columns: []string{"endpoints", "change", "changes", "writes", "in-tree", "bytes a change", "in-tree", "in-tree, with its Pods"},
	}
	var most, moreWrites, moreBytes int
	for _, c := range f.comparisons {
		most, moreWrites, moreBytes = max(most, c.most), moreWrites+c.moreWrites, moreBytes+c.moreBytes
		changes.Rows = append(changes.Rows, row(c.size, c.change, c.changes, c.ours.writes, c.theirs.writes,
			c.ours.bytes/c.changes, c.theirs.bytes/c.changes, (c.theirs.bytes+c.theirs.pods)/c.changes))
	}
	goals := []report.Goal{
		{Text: "writes for one change, at 10 to 5,000 endpoints", Figure: float64(most), AtMost: 1},
		{Text: "changes that take more writes than the in-tree reconciler's", Figure: float64(moreWrites)},
		{Text: "changes that take more bytes than the in-tree reconciler's", Figure: float64(moreBytes)},
	}
	replacements := report.Table{
		Title:   "A rolling replacement (new ones join, old ones drain, old ones are gone), each from its own slices:",
		Columns: []string{"endpoints", "at a time", "changes", "writes", "in-tree", "bytes", "in-tree", "slices left", "in-tree"},
	}
	for _, r := range f.rollings {
		replacements.Rows = append(replacements.Rows, row(r.size, r.atOnce, r.changes, r.ours.writes, r.theirs.writes,
			r.ours.bytes, r.theirs.bytes, r.ourSlices, r.theirSlices))
		name := fmt.Sprintf("of a rolling replacement of %d, %d at a time, over the reconciler's", r.size, r.atOnce)
		goals = append(goals,
			report.Goal{Text: "writes " + name, Figure: ratio(r.ours.writes, r.theirs.writes), AtMost: 1, Unit: "×"},
			report.Goal{Text: "bytes " + name, Figure: ratio(r.ours.bytes, r.theirs.bytes), AtMost: 1, Unit: "×"})
	}
	return report.Report{
		Setup: "The planner and the reconciler of Kubernetes' own EndpointSlice controller (k8s.io/endpointslice) are given the same slices " +
			"and the same changes, once from the slices that either left, with 100 endpoints a slice at most. Bytes are those of the objects " +
			"sent, as protobuf, without the slices' names and without what only a Pod's endpoint has (its name, its UID, its node's name).",
		Goals:  goals,
		Tables: []report.Table{changes, replacements},
	}
}

// ratio of counts; what is set against nothing is infinite, and a goal not met.
func ratio(ours, theirs int) float64 { return float64(ours) / float64(theirs) }

func row(cells ...any) []string {
	out := make([]string, len(cells))
	for i, cell := range cells {
		if n, ok := cell.(int); ok {
			out[i] = whole(n)
		} else {
			out[i] = fmt.Sprint(cell)
		}
	}
	return out
}

// whole is a number that people can read.
func whole(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", whole(n/1000), n%1000)
}
