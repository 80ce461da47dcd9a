// Package allocations compares what the hot pure paths allocate with what they allocated when that
// was last looked at. It promises that a path which allocates more does not go unnoticed, on any
// machine and however busy that is. It refuses to compare times: those are for benchstat, on a
// quiet machine.
package allocations

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// What a figure may grow by before it counts: another patch of Go may give a map other buckets, or
// a slice other room to grow, and a fake clientset (the control's benchmark has one) varies by 2 %.
// An allocation more in fewer than twenty is seen, and so is any that comes with each node or endpoint.
var tolerances = []tolerance{
	{unit: "allocs/op", share: 0.05},
	{unit: "B/op", share: 0.10, more: 64},
}

type tolerance struct {
	unit  string
	share float64 // of the figure
	more  float64 // besides
}

func (t tolerance) most(figure float64) float64 { return math.Floor(figure*(1+t.share) + t.more) }

// Figures are what each benchmark allocates for one operation, by the benchmark's package and name.
type Figures map[string]*benchfmt.Result

// Read takes the figures from what go test prints. Of a benchmark that was run more than once the
// last run counts. All else in it is left out.
func Read(r io.Reader, name string) (Figures, error) {
	figures := Figures{}
	lines := benchfmt.NewReader(r, name)
	for lines.Scan() {
		one, ok := lines.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		one = one.Clone()
		one.Values = slices.DeleteFunc(one.Values, func(v benchfmt.Value) bool {
			return !slices.ContainsFunc(tolerances, func(t tolerance) bool { return t.unit == v.Unit })
		})
		figures[key(one)] = one
	}
	return figures, lines.Err()
}

func key(r *benchfmt.Result) string { return r.GetConfig("pkg") + " " + string(r.Name) }

// Write keeps the figures in the format of Go's benchmarks, sorted, so that benchstat reads them.
func (f Figures) Write(w io.Writer) error {
	out := benchfmt.NewWriter(w)
	for _, name := range f.names() {
		one := f[name].Clone()
		one.SetConfig("cpu", "") // no figure here depends on it
		if err := out.Write(one); err != nil {
			return err
		}
	}
	return nil
}

func (f Figures) names() []string {
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Compare says in a line each what speaks against the figures of now, and what has become less
// since those of before were kept.
func Compare(before, now Figures) (complaints, savings []string) {
	for _, name := range now.names() {
		if before[name] == nil {
			complaints = append(complaints, name+": there is no figure of before")
		}
	}
	for _, name := range before.names() {
		if now[name] == nil {
			complaints = append(complaints, name+": there is no such benchmark any more")
			continue
		}
		for _, t := range tolerances {
			was, known := before[name].Value(t.unit)
			is, measured := now[name].Value(t.unit)
			line := fmt.Sprintf("%s: %.0f %s, before %.0f", name, is, t.unit, was)
			switch {
			case !known || !measured:
				complaints = append(complaints, name+": it does not say its "+t.unit)
			case is > t.most(was):
				complaints = append(complaints, fmt.Sprintf("%s (%s; up to %.0f is let pass)", line, growth(was, is), t.most(was)))
			case was > t.most(is):
				savings = append(savings, line)
			}
		}
	}
	return complaints, savings
}

func growth(was, is float64) string {
	if was == 0 {
		return "none were needed"
	}
	return strings.TrimSuffix(fmt.Sprintf("%+.1f", 100*(is-was)/was), ".0") + " %"
}
