package bench

import (
	"fmt"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
)

// goal is the ratio to the floor that the median must not exceed.
const goal = 1.5

// Report is what a run found.
type Report struct {
	Time     time.Time `json:"time"`
	Machine  string    `json:"machine"`
	Settings string    `json:"settings"`
	Samples  int       `json:"samples"`
	Floor    Times     `json:"floor"`
	Pair     Times     `json:"pair"`
	Ratio    Ratio     `json:"ratio"`
	Goal     string    `json:"goal"`
	GoalsMet bool      `json:"goals_met"`
}

// Times are percentiles in milliseconds.
type Times struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

// Ratio is the pair's time over the floor's.
type Ratio struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func newReport(floor, pair []time.Duration) *Report {
	r := &Report{
		Time:    time.Now().UTC().Truncate(time.Second),
		Machine: figures.Machine(),
		Settings: fmt.Sprintf("one node toggles Ready beside %d ready ones; HEALTH_CHECK_MODE=off, SHRINK_WINDOW=0, everything else at its default",
			readyWorkers),
		Samples: len(pair), Floor: times(floor), Pair: times(pair),
		Goal: fmt.Sprintf("p50 at most %.1f times the floor", goal),
	}
	r.Ratio = Ratio{P50: r.Pair.P50 / r.Floor.P50, P99: r.Pair.P99 / r.Floor.P99}
	r.GoalsMet = r.Ratio.P50 <= goal
	return r
}

func times(samples []time.Duration) Times {
	return Times{P50: figures.Milliseconds(figures.Percentile(samples, 50)), P99: figures.Milliseconds(figures.Percentile(samples, 99))}
}

// String is the table.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Propagation: Node patch in one API server -> EndpointSlice event in the other\n%s\n%s\n%d samples of each, interleaved\n\n",
		r.Settings, r.Machine, r.Samples)
	fmt.Fprintf(&b, "%-34s %9s %9s\n", "", "p50", "p99")
	fmt.Fprintf(&b, "%-34s %6.2f ms %6.2f ms\n", "floor: two API servers, no logic", r.Floor.P50, r.Floor.P99)
	fmt.Fprintf(&b, "%-34s %6.2f ms %6.2f ms\n", "slicefeed", r.Pair.P50, r.Pair.P99)
	fmt.Fprintf(&b, "%-34s %7.2f x %7.2f x\n", "ratio", r.Ratio.P50, r.Ratio.P99)
	verdict := "met"
	if !r.GoalsMet {
		verdict = "NOT met"
	}
	fmt.Fprintf(&b, "\ngoal: %s: %s\n", r.Goal, verdict)
	return b.String()
}
