package mutants

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Begin and End mark the table in a page.
const (
	Begin = "<!-- mutants:begin -->\n"
	End   = "<!-- mutants:end -->"
)

// Table is a Markdown table with a row for each mutant: that of its result, or as it was in the page.
func Table(all []Mutant, results []Result, page string) (string, error) {
	rows := map[string]string{}
	for line := range strings.Lines(between(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			rows[strings.Trim(cells[1], " `")] = line
		}
	}
	for _, r := range results {
		rows[r.Mutant.Name] = row(r)
	}
	var b strings.Builder
	b.WriteString("| bug | what it does | caught by | runs |\n|---|---|---|---|\n")
	for _, m := range all {
		if rows[m.Name] == "" {
			return "", fmt.Errorf("mutant %s was not tried yet", m.Name)
		}
		b.WriteString(rows[m.Name])
	}
	return b.String(), nil
}

func row(r Result) string {
	by := "**missed**"
	if r.Test != "" {
		by = fmt.Sprintf("`%s` in %s", r.Test, strings.TrimPrefix(r.Suite, "services/"))
	}
	worlds := ""
	if r.Mutant.Seeds > 0 {
		worlds = fmt.Sprintf("%s of %d", cmp.Or(strings.TrimPrefix(strconv.Itoa(r.World), "0"), "**none**"), r.Mutant.Seeds)
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", r.Mutant.Name, r.Mutant.Harm, by, worlds)
}

// between is what is between the marks of a page.
func between(page string) string {
	_, rest, _ := strings.Cut(page, Begin)
	table, _, _ := strings.Cut(rest, End)
	return table
}

// Line is a result in one line for a terminal.
func Line(r Result) string {
	what, by := "caught", r.Test+" in "+r.Suite
	switch {
	case r.Err != nil:
		what, by = "ERROR", r.Err.Error()
	case len(r.Mutant.Suites) == 0 && r.Caught():
		by = fmt.Sprintf("by world %d (limit %d)", r.World, r.Mutant.Seeds)
	case len(r.Mutant.Suites) == 0:
		what, by = "MISSED", fmt.Sprintf("by %d worlds", r.Mutant.Seeds)
	case r.Test == "":
		what, by = "MISSED", "by "+strings.Join(r.Mutant.Suites, ", ")
	case !r.Caught():
		what = "MISSED"
		by += fmt.Sprintf(", and not by %d worlds", r.Mutant.Seeds)
	case r.World > 0:
		by += fmt.Sprintf(", and by world %d (limit %d)", r.World, r.Mutant.Seeds)
	}
	return fmt.Sprintf("%-34s %-7s %5.1fs  %s", r.Mutant.Name, what, r.Took.Seconds(), by)
}

// Insert puts a table between the marks of a page.
func Insert(page, table string) (string, error) {
	before, rest, ok := strings.Cut(page, Begin)
	_, after, closed := strings.Cut(rest, End)
	if !ok || !closed {
		return "", fmt.Errorf("the page has no place for the table between %q and %q", strings.TrimSpace(Begin), End)
	}
	return before + Begin + table + End + after, nil
}
