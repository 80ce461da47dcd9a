package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"
)

// Result is what became of a row.
type Result struct {
	Name      string `json:"name"`
	Part      string `json:"part"`
	Meanwhile string `json:"meanwhile,omitempty"`

	Requests int    `json:"requests"`
	Lost     Lost   `json:"lost"`
	Explain  string `json:"explain,omitempty"` // why any were lost to a wrong slice

	// Time to the truth: after the lift, and, where the design promises that it comes while the fault
	// lasts, after the change. -1: not measured.
	AfterLiftMS   int64 `json:"afterLiftMs"`
	WithinMS      int64 `json:"withinMs"`
	AfterChangeMS int64 `json:"afterChangeMs"`
	ThroughMS     int64 `json:"throughMs,omitempty"`

	Writes     int `json:"writes"`
	MostWrites int `json:"mostWrites"`

	InventoryMiB int `json:"inventoryMiB"` // the highest peak of a process
	WriterMiB    int `json:"writerMiB"`

	LateMS int64 `json:"lateMs"` // the longest that a timer was late, on the machine that played it
}

// Report is a whole run.
type Report struct {
	Date       string   `json:"date"`
	Commit     string   `json:"commit,omitempty"` // what was played; empty: a report of before this was noted
	Go         string   `json:"go"`
	Kubernetes string   `json:"kubernetes"`
	Toxiproxy  string   `json:"toxiproxy"`
	Scenes     int      `json:"scenes"`
	TookS      int      `json:"tookSeconds"`
	Rows       []Result `json:"rows"`
}

// File is where the report of the last whole run is.
const File = "results/latest.json"

// ReadReport reads the report of the last whole run.
func ReadReport(path string) (Report, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Report{}, fmt.Errorf("read the report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(raw, &r); err != nil {
		return Report{}, fmt.Errorf("read the report %s: %w", path, err)
	}
	return r, nil
}

// Write writes the report.
func (r Report) Write(path string) error {
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return os.WriteFile(path, append(raw, '\n'), 0o600)
}

// With returns the report with these figures in place of older ones, in the order of the table, and
// without rows that are in it no more.
func (r Report) With(figures map[string]Result) Report {
	known := map[string]Result{}
	for _, row := range r.Rows {
		known[row.Name] = row
	}
	maps.Copy(known, figures)
	r.Rows = nil
	for _, row := range Rows() {
		if is, ok := known[row.Name]; ok {
			r.Rows = append(r.Rows, is)
		}
	}
	return r
}

// Table renders the report for people.
func (r Report) Table() string {
	var text strings.Builder
	var sum Lost
	requests, late := 0, int64(0)
	for _, row := range r.Rows {
		requests += row.Requests
		late = max(late, row.LateMS)
		sum.Wrong, sum.Beyond, sum.Other = sum.Wrong+row.Lost.Wrong, sum.Beyond+row.Lost.Beyond, sum.Other+row.Lost.Other
	}
	fmt.Fprintf(&text, "%d scenarios, %d requests: **%d lost to a wrong slice**, %d beyond what slices can promise, %d for other reasons. "+
		"Last run on %s, of commit %s, with Kubernetes %s, toxiproxy %s and %s, %d scenes side by side, the last time all of them in %s. No row was played again because it failed; timers of the machine were late by %s at most, which is added to a row's bounds up to %s.\n\n",
		len(r.Rows), requests, sum.Wrong, sum.Beyond, sum.Other, r.Date, cmp.Or(r.Commit, "unknown"), r.Kubernetes, r.Toxiproxy, r.Go, r.Scenes, time.Duration(r.TookS)*time.Second, time.Duration(late)*time.Millisecond, maxAllowance)
	text.WriteString("| where | what happens | requests | lost: wrong slice | beyond | truth, seconds after the lift | allowed | during the fault | writes | allowed | MiB: inventory | writer |\n")
	text.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		wrong := strconv.Itoa(row.Lost.Wrong)
		if row.Explain != "" {
			wrong += ": " + row.Explain
		}
		fmt.Fprintf(&text, "| %s | %s | %d | %s | %d | %s | %s | %s | %d | %d | %d | %d |\n", row.Part, row.Name, row.Requests, wrong, row.Lost.Beyond,
			seconds(row.AfterLiftMS), seconds(row.WithinMS), seconds(row.AfterChangeMS), row.Writes, row.MostWrites, row.InventoryMiB, row.WriterMiB)
	}
	return text.String()
}

func seconds(ms int64) string {
	if ms < 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", float64(ms)/1000)
}

// The marks between which the table stands in the page of guarantees.
const (
	BeginMark = "<!-- faults:begin -->"
	EndMark   = "<!-- faults:end -->"
)

// Render puts the report's table between the marks of a page.
func (r Report) Render(page string) (string, error) {
	before, rest, begins := strings.Cut(page, BeginMark)
	_, after, ends := strings.Cut(rest, EndMark)
	if !begins || !ends {
		return "", fmt.Errorf("the page lacks %s and %s", BeginMark, EndMark)
	}
	return before + BeginMark + "\n" + r.Table() + EndMark + after, nil
}
