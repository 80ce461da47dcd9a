package load

import (
	"fmt"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
)

// report is what a run found. The inventory and its clients share the machine.
type report struct {
	Time         time.Time `json:"time"`
	Machine      string    `json:"machine"`
	Nodes        int       `json:"nodes"`
	Subscribers  int       `json:"subscribers"`
	Took         float64   `json:"took_s"`
	HalfSynced   float64   `json:"half_synced_s"`
	AllSynced    float64   `json:"all_synced_s"`
	AllSyncedCPU float64   `json:"all_synced_cpu_s"`
	ResetKB      float64   `json:"reset_kb"`
	Memory       struct {
		EmptyMB             float64 `json:"live_without_subscribers_mb"`
		CrowdMB             float64 `json:"live_with_all_mb"`
		CrowdResidentMB     float64 `json:"resident_with_all_mb"`
		PeakMB              float64 `json:"peak_resident_mb"`
		PerSubscriberKB     float64 `json:"live_per_subscriber_kb"`
		PeakPerSubscriberKB float64 `json:"peak_per_subscriber_kb"`
	} `json:"memory"`
	Change    percentiles `json:"change"`
	ChangeCPU float64     `json:"change_cpu_ms"`
	Sleeper   struct {
		Change     percentiles `json:"change"`
		Ratio      float64     `json:"p50_ratio"`
		GrownMB    float64     `json:"memory_grown_mb"`
		EndedAfter float64     `json:"ended_after_s"`
	} `json:"one_never_reads"`
	Storm struct {
		UnchangedBytes   int64   `json:"unchanged_bytes"`
		UnchangedSeconds float64 `json:"unchanged_s"`
		ChangedBytes     int64   `json:"five_changes_bytes"`
		ChangedSeconds   float64 `json:"five_changes_s"`
	} `json:"reconnect_storm"`
	HalfOpen struct {
		Connections int         `json:"connections"`
		CutOff      float64     `json:"cut_off"`
		Most        float64     `json:"most_unfinished"`
		Newcomer    float64     `json:"newcomer_synced_s"`
		GrownMB     float64     `json:"memory_grown_mb"`
		Change      percentiles `json:"change"`
		Ratio       float64     `json:"p50_ratio"`
	} `json:"half_open"`
	Abuse struct {
		Rubbish  int         `json:"rubbish_connections"`
		Answered int64       `json:"list_nodes_answered"`
		Refused  int64       `json:"list_nodes_refused"`
		GrownMB  float64     `json:"memory_grown_mb"`
		Change   percentiles `json:"change"`
		Ratio    float64     `json:"p50_ratio"`
	} `json:"abuse"`
}

// percentiles are in milliseconds.
type percentiles struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

func newReport() *report {
	return &report{
		Time:    time.Now().UTC().Truncate(time.Second),
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
func (r *report) String() string {
	var b strings.Builder
	row := func(what, format string, values ...any) {
		fmt.Fprintf(&b, "%-56s "+format+"\n", append([]any{what}, values...)...)
	}
	fmt.Fprintf(&b, "The inventory under load: %d nodes, %d subscribers, %s; %.0f s\n\n", r.Nodes, r.Subscribers, r.Machine, r.Took)
	row("all subscribers have the whole set", "%.1f s (half of them: %.1f s), %.1f s of CPU, %.0f KB each", r.AllSynced, r.HalfSynced, r.AllSyncedCPU, r.ResetKB)
	row("live memory (objects, stacks) without and with them", "%.0f MB, %.0f MB", r.Memory.EmptyMB, r.Memory.CrowdMB)
	row("live memory per subscriber", "%.0f KB", r.Memory.PerSubscriberKB)
	row("resident with them, and at the peak", "%.0f MB, %.0f MB", r.Memory.CrowdResidentMB, r.Memory.PeakMB)
	row("peak per subscriber", "%.0f KB", r.Memory.PeakPerSubscriberKB)
	row("a change, from the file to the last subscriber", "p50 %.1f ms, p99 %.1f ms, %.0f ms of CPU", r.Change.P50, r.Change.P99, r.ChangeCPU)
	row("  beside one who never reads", "p50 %.1f ms (%.2f x), p99 %.1f ms", r.Sleeper.Change.P50, r.Sleeper.Ratio, r.Sleeper.Change.P99)
	row("  that one", "%+.1f MB, ended after %.0f s", r.Sleeper.GrownMB, r.Sleeper.EndedAfter)
	row("all come back at once, nothing changed", "%d bytes each, %.1f s", r.Storm.UnchangedBytes, r.Storm.UnchangedSeconds)
	row("all come back at once, 5 nodes changed", "%d bytes each, %.1f s", r.Storm.ChangedBytes, r.Storm.ChangedSeconds)
	row(fmt.Sprintf("%d half-open handshakes", r.HalfOpen.Connections), "%.0f cut off, at most %.0f at a time, %+.1f MB", r.HalfOpen.CutOff, r.HalfOpen.Most, r.HalfOpen.GrownMB)
	row("  a newcomer in the midst of them has the set", "%.1f s", r.HalfOpen.Newcomer)
	row("  a change meanwhile", "p50 %.1f ms (%.2f x), p99 %.1f ms", r.HalfOpen.Change.P50, r.HalfOpen.Ratio, r.HalfOpen.Change.P99)
	row("rubbish, and ListNodes from 50 at once", "%d connections; %d answered, %d refused, %+.1f MB", r.Abuse.Rubbish, r.Abuse.Answered, r.Abuse.Refused, r.Abuse.GrownMB)
	row("  a change meanwhile", "p50 %.1f ms (%.2f x), p99 %.1f ms", r.Abuse.Change.P50, r.Abuse.Ratio, r.Abuse.Change.P99)
	return b.String()
}
