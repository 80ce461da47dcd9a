package propagation

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// The goals of larger sizes.
const (
	goalGrowth = 1.3
	goalStart  = 2.0
	// The writer shares the machine's cores with the API server, and its memory is what the chart allows it.
	goalServices       = 2.0
	goalServicesMemory = 256 // MB
)

const whyWriterGrows = "A change of one Service is three decisions (on the source's report, on the response to the write, and on its watch event), and each looks at all endpoints " +
	"of the Service, since guards are about the whole: is anything ready, how many leave, does any probe pass. A decision that is patched instead of made would be a second form of the rules, to be held to the first. Other Services cost a change nothing."

func growthPart(of plan, sizes []*size, starts *started) *report.Part {
	from, to := sizes[1], sizes[len(sizes)-1] // the first is too small for a whole slice
	grown := fmt.Sprintf("%d nodes over %d", to.nodes, from.nodes)
	writer := growth("CPU of one change in the writer, "+grown, from.writer, to.writer)
	writer.Remark = whyWriterGrows
	part := &report.Part{
		Title: "More nodes",
		Setup: fmt.Sprintf(
			"Nodes of real size (50 images) in the secured cluster, each with a server in the cloud's emulator; one Service; HEALTH_CHECK_MODE=off and SHRINK_WINDOW=0. "+
				"At each size %d changes of one Node's readiness, each of another Node, in turn with as many of the floor, whose slice is as large as the one that is written (%d endpoints at most); "+
				"then %d rounds of %d changes of the pair's alone, for its CPU, and %d Nodes that leave and join again. Writes are counted by the API server in all of these.",
			of.samples,
			perSlice,
			of.rounds,
			of.changes,
			replaced,
		),
		Goals: []report.Goal{
			growth("time of one change as a multiple of the floor's, "+grown, from.ratios(), to.ratios()),
			growth("CPU of one change in the inventory, "+grown, from.inventory, to.inventory),
			writer,
			startGoal(starts),
		},
		Tables: []report.Table{sizesTable(sizes), startTable(starts)},
		Plots:  []report.Plot{growthPlot(sizes)},
	}
	for _, s := range sizes {
		part.Goals = append(
			part.Goals,
			report.Goal{Text: fmt.Sprintf("writes for one change with %d nodes", s.nodes), Figure: s.writes(), AtMost: 1},
		)
	}
	return part
}

func servicesPart(of plan, s *size) *report.Part {
	return &report.Part{
		Title: "More Services",
		Setup: fmt.Sprintf(
			"%d Services of one class in one namespace, each with all %d nodes; HEALTH_CHECK_MODE=off and SHRINK_WINDOW=0. %d times the readiness of one node changes, "+
				"in turn with the floor, which writes as many slices of the same size with as many requests under way (%d at most). The floor is an administrator, whom the API server's priority and fairness lets pass. "+
				"Then %d changes of the pair's alone, for its CPU, and %d Nodes that leave and join again.",
			of.services,
			s.nodes,
			len(s.pair),
			requestsUnderWay,
			s.changes-2*replaced,
			replaced,
		),
		Goals: []report.Goal{
			s.servicesGoal(fmt.Sprintf("p50 of all slices of %d Services, over the floor's", of.services), 50),
			s.servicesGoal(fmt.Sprintf("p99 of all slices of %d Services, over the floor's", of.services), 99),
			{Text: fmt.Sprintf("writes for one change with %d Services", of.services), Figure: s.writes(), AtMost: float64(of.services)},
			{Text: fmt.Sprintf("requests that the API server answered with 429, with %d Services", of.services), Figure: s.cost.refused},
			{
				Text:   fmt.Sprintf("the writer's memory at its peak, with %d Services", of.services),
				Figure: float64(s.memory[1].Peak >> 20),
				AtMost: goalServicesMemory,
				Unit:   "MB",
			},
		},
		Tables: []report.Table{{
			Title:   "From the patch being sent to the event of a slice:",
			Columns: []string{"", "p50 of all slices", "p99 of all slices", "the last slice, p50", "the last slice, p99"},
			Rows:    [][]string{servicesRow("floor", s.floor), servicesRow(slicefeedName, s.pair)},
		}, {
			Title:   "The writer:",
			Columns: []string{"", ""},
			Rows: [][]string{
				{"CPU of a change", fmt.Sprintf("%.0f ms, %.2f ms a Service", least(s.writer), least(s.writer)/float64(of.services))},
				{"resident before the changes", fmt.Sprintf("%d MB", s.idle.Resident>>20)},
				{"resident after them", fmt.Sprintf("%d MB", s.memory[1].Resident>>20)},
				{"peak", fmt.Sprintf("%d MB", s.memory[1].Peak>>20)},
			},
		}},
	}
}

// writes are those of slices for one change.
func (s *size) writes() float64 { return s.cost.writes / float64(s.changes) }

// growth is a goal about how much of something there is at one size and at another. Of several figures the least
// counts: what disturbs only adds.
func growth(text string, from, to []float64) report.Goal {
	return report.Goal{Text: text, Figure: least(to) / least(from), AtMost: goalGrowth, Unit: "×", Noise: variation(from) + variation(to)}
}

// ratios are the medians of the pair over those of the floor, in each third of the samples.
func (s *size) ratios() []float64 {
	var all []float64
	third := len(s.pair) / 3
	for i := range 3 {
		all = append(all, medianOf(s.pair[i*third:(i+1)*third])/medianOf(s.floor[i*third:(i+1)*third]))
	}
	return all
}

func (s *size) servicesGoal(text string, percentile int) report.Goal {
	ratio := func(floor, pair [][]time.Duration) float64 {
		return figures.Percentile(slices.Concat(pair...), percentile).
			Seconds() /
			figures.Percentile(slices.Concat(floor...), percentile).
				Seconds()
	}
	half := len(s.pair) / 2
	return report.Goal{
		Text: text, Figure: ratio(s.floor, s.pair), AtMost: goalServices, Unit: "×",
		Noise: math.Abs(ratio(s.floor[:half], s.pair[:half]) - ratio(s.floor[half:], s.pair[half:])),
	}
}

func startGoal(s *started) report.Goal {
	ratios := make([]float64, len(s.synced))
	for i, least := range s.least() {
		ratios[i] = s.own()[i].Seconds() / least.Seconds()
	}
	return report.Goal{
		Text: fmt.Sprintf(
			"an inventory's start to its first synced message with %d nodes, over a bare LIST of the Nodes and the cloud's pages",
			s.nodes,
		),
		Figure: slices.Sorted(slices.Values(ratios))[len(ratios)/2],
		AtMost: goalStart,
		Unit:   "×",
		Noise:  slices.Max(ratios) - slices.Min(ratios),
	}
}

func sizesTable(sizes []*size) report.Table {
	t := report.Table{
		Title: "One change, from the patch being sent to the event of the slice:",
		Columns: []string{
			"nodes",
			"floor p50",
			"p50",
			"p99",
			"× floor",
			"CPU inventory",
			"CPU writer",
			"resident inventory",
			"resident writer",
		},
	}
	for _, s := range sizes {
		t.Rows = append(t.Rows, []string{
			strconv.Itoa(s.nodes),
			msOf(medianOf(s.floor)),
			msOf(medianOf(s.pair)),
			ms(figures.Percentile(slices.Concat(s.pair...), 99)),
			fmt.Sprintf("%.2f", medianOf(s.pair)/medianOf(s.floor)),
			msOf(
				least(s.inventory),
			),
			msOf(least(s.writer)),
			fmt.Sprintf("%d MB", s.memory[0].Resident>>20),
			fmt.Sprintf("%d MB", s.memory[1].Resident>>20),
		})
	}
	from, to := sizes[1], sizes[len(sizes)-1]
	slope := func(of func(*size) float64) string {
		return fmt.Sprintf("%+.2f ms", (of(to)-of(from))*1000/float64(to.nodes-from.nodes))
	}
	t.Rows = append(t.Rows, []string{
		"each 1,000 nodes more",
		slope(func(s *size) float64 { return medianOf(s.floor) }),
		slope(func(s *size) float64 { return medianOf(s.pair) }),
		"",
		"",
		slope(func(s *size) float64 { return least(s.inventory) }),
		slope(func(s *size) float64 { return least(s.writer) }),
		"",
		"",
	})
	return t
}

func startTable(s *started) report.Table {
	row := func(what string, took []time.Duration) []string {
		return []string{what, ms(figures.Percentile(took, 50)), ms(slices.Min(took)), ms(slices.Max(took))}
	}
	return report.Table{
		Title:   fmt.Sprintf("An inventory's start with %d nodes, %d times:", s.nodes, len(s.synced)),
		Columns: []string{"", "median", "least", "most"},
		Rows: [][]string{
			row("bare LIST of the Nodes, in pages", s.listed),
			row("the cloud's pages", s.cloud),
			row("both, one after the other: the least", s.least()),
			row("the process alone (`version`)", s.program),
			row("from the process's start to the first synced message", s.synced),
			row("the same without the process alone", s.own()),
		},
	}
}

func growthPlot(sizes []*size) report.Plot {
	series := func(name string, of func(*size) float64) report.Series {
		line := report.Series{Name: name}
		for _, s := range sizes {
			line.Points = append(line.Points, [2]float64{float64(s.nodes), of(s)})
		}
		return line
	}
	return report.Plot{
		Name: "growth", Title: "Cost of one change",
		X: report.Axis{Label: "nodes", Log: true}, Y: report.Axis{Label: "ms"},
		Series: []report.Series{
			series("time, p50", func(s *size) float64 { return medianOf(s.pair) }),
			series("time of the floor, p50", func(s *size) float64 { return medianOf(s.floor) }),
			series("CPU of the inventory", func(s *size) float64 { return least(s.inventory) }),
			series("CPU of the writer", func(s *size) float64 { return least(s.writer) }),
		},
	}
}

func servicesRow(name string, changes [][]time.Duration) []string {
	last := make([]time.Duration, len(changes))
	for i, each := range changes {
		last[i] = each[len(each)-1]
	}
	row := []string{name}
	for _, samples := range [][]time.Duration{slices.Concat(changes...), last} {
		for _, percentile := range []int{50, 99} {
			row = append(row, fmt.Sprintf("%.0f ms", figures.Milliseconds(figures.Percentile(samples, percentile))))
		}
	}
	return row
}

// medianOf is in milliseconds.
func medianOf(changes [][]time.Duration) float64 {
	return figures.Milliseconds(figures.Percentile(slices.Concat(changes...), 50))
}

func msOf(value float64) string { return fmt.Sprintf("%.2f ms", value) }

func least(of []float64) float64 { return slices.Min(of) }

// variation is how far apart figures of the same are, as a part of the least.
func variation(of []float64) float64 { return (slices.Max(of) - least(of)) / least(of) }
