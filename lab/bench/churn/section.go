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

func (f *found) part() *report.Part {
	s := &report.Part{
		Setup: "The planner and the reconciler of Kubernetes' own EndpointSlice controller (k8s.io/endpointslice) are given the same slices " +
			"and the same changes, once from the slices that either left, with 100 endpoints a slice at most. " +
			"Bytes are those of the objects sent, as protobuf, without the slices' names.",
		Tables: []report.Table{f.changes(), f.replacements()},
		Notes: []string{
			"The reconciler makes slices for Pods. What only a Pod's endpoint has (its name, its UID, its node's name) is in the last column, " +
				"and is not set against it. Its annotation with the time of the change is left out altogether.",
		},
	}
	var most, moreWrites, moreBytes int
	for _, c := range f.comparisons {
		most, moreWrites, moreBytes = max(most, c.most), moreWrites+c.moreWrites, moreBytes+c.moreBytes
	}
	s.Goals = []report.Goal{
		{Text: "writes for one change, at 10 to 5,000 endpoints", Figure: float64(most), AtMost: 1},
		{Text: "changes that take more writes than the in-tree reconciler's", Figure: float64(moreWrites)},
		{Text: "changes that take more bytes than the in-tree reconciler's", Figure: float64(moreBytes)},
	}
	for _, r := range f.rollings {
		name := fmt.Sprintf("of a rolling replacement of %d, %d at a time, over the reconciler's", r.size, r.atOnce)
		s.Goals = append(s.Goals,
			report.Goal{Text: "writes " + name, Figure: ratio(r.ours.writes, r.theirs.writes), AtMost: 1, Unit: "×"},
			report.Goal{Text: "bytes " + name, Figure: ratio(r.ours.bytes, r.theirs.bytes), AtMost: 1, Unit: "×"})
	}
	return s
}

func (f *found) changes() report.Table {
	t := report.Table{
		Title:   "One change, from the same slices:",
		Columns: []string{"endpoints", "change", "changes", "writes", "in-tree", "bytes a change", "in-tree", "in-tree, with its Pods"},
	}
	for _, c := range f.comparisons {
		t.Rows = append(t.Rows, []string{
			whole(c.size), c.change, whole(c.changes), whole(c.ours.writes), whole(c.theirs.writes),
			whole(c.ours.bytes / c.changes), whole(c.theirs.bytes / c.changes), whole((c.theirs.bytes + c.theirs.pods) / c.changes),
		})
	}
	return t
}

func (f *found) replacements() report.Table {
	t := report.Table{
		Title: "A rolling replacement (new ones join, old ones drain, old ones are gone), each from its own slices:",
		Columns: []string{
			"endpoints",
			"at a time",
			"changes",
			"writes",
			"in-tree",
			"bytes",
			"in-tree",
			"in-tree, with its Pods",
			"slices left",
			"in-tree",
		},
	}
	for _, r := range f.rollings {
		t.Rows = append(t.Rows, []string{
			whole(r.size), whole(r.atOnce), whole(r.changes), whole(r.ours.writes), whole(r.theirs.writes),
			whole(r.ours.bytes), whole(r.theirs.bytes), whole(r.theirs.bytes + r.theirs.pods), whole(r.ourSlices), whole(r.theirSlices),
		})
	}
	return t
}

// ratio of counts; what is set against nothing is infinite, and a goal not met.
func ratio(ours, theirs int) float64 { return float64(ours) / float64(theirs) }

// whole is a number that people can read.
func whole(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", whole(n/1000), n%1000)
}
