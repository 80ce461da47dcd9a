package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const page = "../../../docs/proof/faults.md"

var (
	update = flag.String("update", "", "a file with the output of go test -json, whose figures go into "+page)
	commit = flag.String("commit", "", "what these tests were built from")
)

// tableRowAttr is the attribute of a passed subtest whose value is its row of the page.
const tableRowAttr = "table-row"

const (
	beginMark = "<!-- faults:begin -->\n"
	endMark   = "<!-- faults:end -->"

	tableHead = "| where | fault | change during the fault | requests | lost: wrong slice | beyond | correct after the fault, s | bound | correct during the fault, s | bound | writes | bound | MiB inventory | MiB writer | lag, ms |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
)

// The numbers of some columns.
const (
	columnRequests = 3
	columnWrong    = 4
	columnBeyond   = 5
	columnLag      = 14
)

// key is the beginning of the row of the page.
func (r row) key() string {
	change := r.during.name
	if change == "" {
		change = "–"
	}
	return fmt.Sprintf("| %s | %s | %s |", r.kind, r.fault, change)
}

func (r row) tableRow(f figures) string {
	wrong, during, duringBound := strconv.Itoa(f.lost.wrong), "", ""
	if r.whyLost != "" {
		wrong += ": " + r.whyLost
	}
	if r.correctDuring > 0 {
		during, duringBound = seconds(f.correctDuring), seconds(r.correctDuring)
	}
	return fmt.Sprintf(
		"%s %d | %s | %d | %s | %s | %s | %s | %d | %d | %d | %d | %d |",
		r.key(),
		f.requests,
		wrong,
		f.lost.beyond,
		seconds(
			f.correctAfter,
		),
		seconds(r.correctAfter),
		during,
		duringBound,
		f.writes,
		r.writes(),
		f.inventoryMiB,
		f.writerMiB,
		f.lag.Milliseconds(),
	)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }

// The page has the figures of each row's last run: `make faults` writes them.
func TestPageHasEachRow(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(raw), beginMark)
	table, after, found := strings.Cut(rest, endMark)
	if !found {
		t.Fatalf("%s has no %s and %s", page, strings.TrimSpace(beginMark), endMark)
	}
	if *update != "" {
		results, err := os.ReadFile(*update)
		if err != nil {
			t.Fatal(err)
		}
		measured, err := tableRows(results)
		if err != nil {
			t.Fatal(err)
		}
		table = updateTable(table, measured, time.Now().UTC().Format(time.DateOnly)+" at commit "+*commit)
		if err := os.WriteFile(page, []byte(before+beginMark+table+endMark+after), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := slices.Collect(strings.Lines(table))
	for _, r := range rows() {
		i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, r.key()) })
		if i < 0 {
			t.Errorf("%s has no figures for %q: run tools/faults NAME", page, r.name())
			continue
		}
		lines = slices.Delete(lines, i, i+1)
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "| ") && !strings.Contains(tableHead, line) {
			t.Errorf("%s has figures of no row: %s", page, line)
		}
	}
}

// tableRows returns the rows that the passed tests have measured.
func tableRows(results []byte) ([]string, error) {
	var all []string
	for decoder := json.NewDecoder(bytes.NewReader(results)); ; {
		var event struct{ Action, Key, Value string }
		switch err := decoder.Decode(&event); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read the output of go test -json: %w", err)
		case event.Action == "attr" && event.Key == tableRowAttr:
			all = append(all, event.Value)
		}
	}
}

// updateTable returns the table in the order of rows, with these rows instead of older ones.
func updateTable(table string, measured []string, when string) string {
	var text strings.Builder
	var requests, wrong, beyond, lag int
	total := 0
	for _, r := range rows() {
		line := ""
		for _, l := range slices.Concat(strings.Split(table, "\n"), measured) { // the last one counts
			if strings.HasPrefix(l, r.key()) {
				line = l
			}
		}
		if line == "" {
			continue
		}
		total++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		requests += number(cells[columnRequests])
		wrong += number(cells[columnWrong])
		beyond += number(cells[columnBeyond])
		lag = max(lag, number(cells[columnLag]))
		text.WriteString(line + "\n")
	}
	return fmt.Sprintf(
		"%d rows, %d requests: **%d lost to a wrong slice**, %d beyond what slices can prevent. Last run, of all or some rows: %s. "+
			"Timers of the machine were late by %d ms at most (*lag*), which is added to a row's bounds up to %s. A row that fails is not run again.\n\n",
		total,
		requests,
		wrong,
		beyond,
		when,
		lag,
		maxAllowance,
	) + tableHead + text.String()
}

// number returns the number at the beginning of a cell.
func number(cell string) int {
	n, _ := strconv.Atoi(strings.TrimRight(strings.Fields(cell + " 0")[0], ":"))
	return n
}

func TestNewFiguresReplaceOldOnes(t *testing.T) {
	all := rows()
	figure := func(r row, requests, wrong int) string {
		return r.tableRow(figures{requests: requests, lost: lost{wrong: wrong, beyond: 1}, lag: 7 * time.Millisecond})
	}
	old := "an old summary\n\n" + tableHead + "| a removed row | of | old | 9 |\n" + figure(all[1], 10, 5) + "\n"
	results := []string{`{"Action":"run","Test":"TestFaults"}`}
	for _, line := range []string{figure(all[1], 20, 0), figure(all[0], 300, 2)} {
		event, err := json.Marshal(map[string]string{"Action": "attr", "Key": tableRowAttr, "Value": line})
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, string(event))
	}
	measured, err := tableRows([]byte(strings.Join(results, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	summary, table, _ := strings.Cut(updateTable(old, measured, "today"), "\n\n")
	if want := tableHead + figure(all[0], 300, 2) + "\n" + figure(all[1], 20, 0) + "\n"; table != want {
		t.Errorf("got\n%s\nwant\n%s", table, want)
	}
	if want := "2 rows, 320 requests: **2 lost to a wrong slice**, 2 beyond what slices can prevent. Last run, of all or some rows: today. Timers of the machine were late by 7 ms"; !strings.HasPrefix(
		summary,
		want,
	) {
		t.Errorf("got the summary %q, want %q", summary, want)
	}
}
