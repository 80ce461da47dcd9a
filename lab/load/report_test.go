package load

import (
	"fmt"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
)

// loadReport is what a run found. The inventory and its clients share the machine.
type loadReport struct {
	Machine      string
	Nodes        int
	Subscribers  int
	Took         float64
	HalfSynced   float64
	AllSynced    float64
	AllSyncedCPU float64
	ResetKB      float64
	Memory       struct {
		EmptyMB             float64
		CrowdMB             float64
		CrowdResidentMB     float64
		PeakMB              float64
		PerSubscriberKB     float64
		PeakPerSubscriberKB float64
	}
	Change    percentiles
	ChangeCPU float64
	Sleeper   struct {
		Change     percentiles
		Ratio      float64
		GrownMB    float64
		EndedAfter float64
	}
	Storm struct {
		UnchangedBytes   int64
		UnchangedSeconds float64
		ChangedBytes     int64
		ChangedSeconds   float64
	}
	HalfOpen struct {
		Connections int
		CutOff      float64
		Most        float64
		Newcomer    float64
		GrownMB     float64
		Change      percentiles
		Ratio       float64
	}
	Abuse struct {
		Rubbish  int
		Answered int64
		Refused  int64
		GrownMB  float64
		Change   percentiles
		Ratio    float64
	}
}

// percentiles are in milliseconds.
type percentiles struct {
	P50 float64
	P99 float64
}

func newLoadReport() *loadReport {
	return &loadReport{
		Machine: figures.Machine(),
		Nodes:   nodes, Subscribers: subscribers,
	}
}

func times(took []time.Duration) percentiles {
	return percentiles{
		figures.Milliseconds(figures.Percentile(took, 50)), figures.Milliseconds(figures.Percentile(took, 99)),
	}
}

// String is the table.
func (r *loadReport) String() string {
	var b strings.Builder
	row := func(what, format string, values ...any) {
		fmt.Fprintf(&b, "%-56s "+format+"\n", append([]any{what}, values...)...)
	}
	fmt.Fprintf(&b, "The inventory under load: %d nodes, %d subscribers, %s; %.0f s\n\n", r.Nodes, r.Subscribers, r.Machine, r.Took)
	row(
		"all subscribers have the whole set",
		"%.1f s (half of them: %.1f s), %.1f s of CPU, %.0f KB each",
		r.AllSynced,
		r.HalfSynced,
		r.AllSyncedCPU,
		r.ResetKB,
	)
	row("live memory (objects, stacks) without and with them", "%.0f MB, %.0f MB", r.Memory.EmptyMB, r.Memory.CrowdMB)
	row("live memory per subscriber", "%.0f KB", r.Memory.PerSubscriberKB)
	row("resident with them, and at the peak", "%.0f MB, %.0f MB", r.Memory.CrowdResidentMB, r.Memory.PeakMB)
	row("peak per subscriber", "%.0f KB", r.Memory.PeakPerSubscriberKB)
	row(
		"a change, from the file to the last subscriber",
		"p50 %.1f ms, p99 %.1f ms, %.0f ms of CPU",
		r.Change.P50,
		r.Change.P99,
		r.ChangeCPU,
	)
	row("  beside one who never reads", "p50 %.1f ms (%.2f x), p99 %.1f ms", r.Sleeper.Change.P50, r.Sleeper.Ratio, r.Sleeper.Change.P99)
	row("  that one", "%+.1f MB, ended after %.0f s", r.Sleeper.GrownMB, r.Sleeper.EndedAfter)
	row("all come back at once, nothing changed", "%d bytes each, %.1f s", r.Storm.UnchangedBytes, r.Storm.UnchangedSeconds)
	row("all come back at once, 5 nodes changed", "%d bytes each, %.1f s", r.Storm.ChangedBytes, r.Storm.ChangedSeconds)
	row(
		fmt.Sprintf("%d half-open handshakes", r.HalfOpen.Connections),
		"%.0f cut off, at most %.0f at a time, %+.1f MB",
		r.HalfOpen.CutOff,
		r.HalfOpen.Most,
		r.HalfOpen.GrownMB,
	)
	row("  a newcomer in the midst of them has the set", "%.1f s", r.HalfOpen.Newcomer)
	row("  a change meanwhile", "p50 %.1f ms (%.2f x), p99 %.1f ms", r.HalfOpen.Change.P50, r.HalfOpen.Ratio, r.HalfOpen.Change.P99)
	row(
		"rubbish, and ListNodes from 50 at once",
		"%d connections; %d answered, %d refused, %+.1f MB",
		r.Abuse.Rubbish,
		r.Abuse.Answered,
		r.Abuse.Refused,
		r.Abuse.GrownMB,
	)
	row("  a change meanwhile", "p50 %.1f ms (%.2f x), p99 %.1f ms", r.Abuse.Change.P50, r.Abuse.Ratio, r.Abuse.Change.P99)
	return b.String()
}
