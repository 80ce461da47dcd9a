package propagation

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/figures"
)

// goalExportedMemory is what an exported Service may take of the inventory's resident memory, in KB.
const goalExportedMemory = 256

func (e *exportsBench) part() *report.Part {
	over := fmt.Sprintf(", %d exported Services over %d", e.many.services, e.one.services)
	time50 := goal("time of one change, p50"+over, e.one.took, e.many.took, 50, goalGrowth)
	time50.Remark = ""
	return &report.Part{
		Setup: fmt.Sprintf("Services of %d endpoints, exported with SOURCE_SERVICE_SELECTOR; HEALTH_CHECK_MODE=off and SHRINK_WINDOW=0. "+
			"An inventory and a writer with 1 exported Service, and others with %d, run on the same API servers. "+
			"%d times the readiness of one endpoint changes on each side, by chance of either first. Each change but its way back is of another Service. "+
			"Then both sides rest for %v, and %d rounds of %d changes of one side at a time follow, for their CPU. What the same time at rest takes is subtracted. "+
			"Writes are counted by the API server in all rounds.",
			exportedEndpoints, e.many.services, len(e.many.took), e.restFor, e.rounds, e.changes),
		Goals: []report.Goal{
			time50,
			e.cpuGoal("CPU of one change in the inventory"+over, 0),
			e.cpuGoal("CPU of one change in the writer"+over, 1),
			{Text: "writes for one change of an exported Service", Figure: e.cost.writes / float64(2*e.rounds*e.changes), AtMost: 1},
			{
				Text:   "resident memory of the inventory for each exported Service",
				Figure: e.memoryPerService(0),
				AtMost: goalExportedMemory,
				Unit:   "KB",
			},
		},
		Tables: []report.Table{
			{
				Title: "One change, from the patch of the exported Service's slice being sent to the event of the written slice:",
				Columns: []string{
					"exported Services",
					"p50",
					"p99",
					"CPU inventory",
					"CPU writer",
					"at rest: inventory",
					"writer",
					"resident inventory",
					"writer",
				},
				Rows: [][]string{e.one.row(), e.many.row()},
			},
		},
		Notes: []string{
			fmt.Sprintf(
				"Each exported Service takes %.0f KB of resident memory in the inventory and %.0f KB in the writer.",
				e.memoryPerService(0),
				e.memoryPerService(1),
			),
		},
	}
}

// cpuGoal compares the medians of the rounds: the least of them would be the one with the least background work.
func (e *exportsBench) cpuGoal(text string, component int) report.Goal {
	one, many := e.one.cpu[component], e.many.cpu[component]
	half := len(one) / 2
	first, second := middle(many[:half])/middle(one[:half]), middle(many[half:])/middle(one[half:])
	return report.Goal{Text: text, Figure: middle(many) / middle(one), AtMost: goalGrowth, Unit: "×", Noise: math.Abs(first - second)}
}

// middle is the median, or the larger of two.
func middle(of []float64) float64 { return slices.Sorted(slices.Values(of))[len(of)/2] }

// memoryPerService is what each further Service takes of a component's resident memory, in KB.
func (e *exportsBench) memoryPerService(component int) float64 {
	more := e.many.memory[component].Resident - e.one.memory[component].Resident
	return float64(more) / 1024 / float64(e.many.services-e.one.services)
}

func (s *exportSide) row() []string {
	cells := []string{strconv.Itoa(s.services), ms(figures.Percentile(times(s.took), 50)), ms(figures.Percentile(times(s.took), 99))}
	for _, rounds := range s.cpu {
		cells = append(cells, msOf(middle(rounds)))
	}
	for _, share := range s.rest {
		cells = append(cells, fmt.Sprintf("%.2f %%", share*100))
	}
	for _, usage := range s.memory {
		cells = append(cells, fmt.Sprintf("%d MB", usage.Resident>>20))
	}
	return cells
}
