package faults

import (
	"fmt"
	"strconv"
	"time"
)

// tableRowAttr is the attribute of a passed subtest whose value is its row of the table that `make faults` writes.
const tableRowAttr = "table-row"

// key is the beginning of the row of the table.
func (r row) key() string {
	change := r.during.name
	if change == "" {
		change = "–"
	}
	return fmt.Sprintf("| %s | %s | %s |", r.kind, r.fault, change)
}

func (r row) tableRow(f figures) string {
	wrong, during, duringBound := strconv.Itoa(f.lost.Wrong), "", ""
	if r.whyLost != "" {
		wrong += ": " + r.whyLost
	}
	if r.correctDuring > 0 {
		during, duringBound = seconds(f.correctDuring), seconds(r.correctDuring)
	}
	return fmt.Sprintf(
		"%s %d | %s | %d | %s | %s | %s | %s | %d | %d | %d |",
		r.key(),
		f.requests,
		wrong,
		f.lost.JustDied,
		seconds(f.correctAfter),
		seconds(r.correctAfter),
		during,
		duringBound,
		f.writes,
		r.writes(),
		f.lag.Milliseconds(),
	)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }
