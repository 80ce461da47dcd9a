package runbooks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// alike are things that differ from run to run, and what stands for each when outputs are compared.
var alike = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "<uuid>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d(([T ])\d\d:\d\d(:\d\d(\.\d+)?)?)?Z?\b`), "<date>"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?Z?\b`), "<time>"},
	{regexp.MustCompile(`\b((\d+(\.\d+)?)(ms|µs|d|h|m|s))+\b`), "<duration>"},
	{regexp.MustCompile(`\b(slicefeed-(?:inventory|writer))-[a-z0-9]{8,10}-[a-z0-9]{5}\b`), "$1-<pod>"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// several is a list of addresses, whose order is that in which they were found out.
var several = regexp.MustCompile(`\b\d+(\.\d+){3}(,\d+(\.\d+){3})+\b`)

func loosely(line string) string {
	line = several.ReplaceAllStringFunc(line, func(list string) string {
		return strings.Join(slices.Sorted(strings.SplitSeq(list, ",")), ",")
	})
	for _, a := range alike {
		line = a.what.ReplaceAllString(line, a.as)
	}
	return strings.TrimSpace(line)
}

// Matches compares what a page shows with what was printed, line by line and in order. Durations,
// dates, UUIDs, names of Pods, the order of addresses in a list and the width of columns do not count; … stands for anything within
// a line, and a line of it for any lines. Lines that the page leaves out in between are a
// difference, as is anything after its last line.
func Matches(shown, printed string) error {
	want, got := split(shown), split(printed)
	at, gap := 0, false
	for _, line := range want {
		if line == "…" {
			gap = true
			continue
		}
		expression := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(loosely(line)), "…", ".*") + "$")
		found := at
		for found < len(got) && !expression.MatchString(loosely(got[found])) {
			found++
		}
		if found == len(got) {
			return fmt.Errorf("it does not print, after its line %d: %s", at, line)
		}
		if found > at && !gap {
			return fmt.Errorf("it prints a line that the page does not show: %s", got[at])
		}
		at, gap = found+1, false
	}
	if at < len(got) && !gap {
		return fmt.Errorf("it prints a line more than the page shows: %s", got[at])
	}
	return nil
}

// split returns the lines that are not empty.
func split(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
