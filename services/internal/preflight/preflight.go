// Package preflight checks the dependencies of a component before it runs, and prints one line for each
// check with what to do. It guarantees that each check ends within its timeout, and that its result is
// one line that is safe for a terminal, whatever text it contains. It does not change anything.
package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

const (
	// DefaultTimeout is the timeout of checks that do not set their own.
	DefaultTimeout = 15 * time.Second

	maxTextBytes = 600 // of a line, after the check's name
	maxFindings  = 20  // lines about the findings of one check
)

// Check is one dependency to check.
type Check struct {
	Name      string
	DependsOn []string      // names of earlier checks; if one failed or was skipped, this one is skipped
	Timeout   time.Duration // of Run; 0: DefaultTimeout

	// Run returns what it observed. Its error has what is wrong, the consequence and what to do. A check
	// of many items returns what Summarize does.
	Run func(ctx context.Context) (observed string, err error)
}

// Finding is the result of a check, or for one of its items.
type Finding struct {
	Name     string
	Observed string
	Err      error // a failure or a Warning
}

// warningError is an error that does not fail a check.
type warningError struct{ error }

// Warning returns an error for Check.Run about something that works, but needs the attention of a
// person.
func Warning(format string, args ...any) error { return warningError{fmt.Errorf(format, args...)} }

func isWarning(err error) bool { return errors.As(err, new(warningError)) }

func isFailure(err error) bool { return err != nil && !isWarning(err) }

// summaryError is the result of a check of many items: its own finding, and those of its items.
type summaryError struct {
	Finding

	items []Finding
}

func (s *summaryError) Error() string { return s.Observed }

// Summarize returns the findings about the items of a check as the result of its Run: one line describes
// which pass, and each that fails or warns has its own line, whose name begins with the prefix. The check
// fails if no item passes. A single finding has only one line.
func Summarize(prefix string, findings []Finding, describe func(passed []string) string) (string, error) {
	if len(findings) == 1 {
		return findings[0].Observed, findings[0].Err
	}
	var passed []string
	var failed, warned []Finding
	for _, f := range findings {
		line := Finding{prefix + f.Name, f.Observed, f.Err}
		if isFailure(f.Err) {
			failed = append(failed, line)
			continue
		}
		passed = append(passed, f.Name)
		if f.Err != nil {
			warned = append(warned, line)
		}
	}
	problems := slices.Concat(failed, warned)
	summary := &summaryError{Finding{Observed: describe(passed)}, problems}
	if len(problems) == 0 {
		return summary.Observed, nil
	}
	if len(passed) == 0 {
		summary.Err = errors.New(summary.Observed)
	}
	if more := len(problems) - maxFindings; more > 0 {
		rest := fmt.Errorf("%d more with problems; fix those above first", more)
		if isWarning(problems[maxFindings].Err) {
			rest = warningError{rest}
		}
		problems[maxFindings] = Finding{Name: prefix + "others", Err: rest}
		summary.items = problems[:maxFindings+1]
	}
	return "", summary
}

// Report has a line for each check and for each finding of a check that has its own. It is the result of preflight.
type Report struct {
	Failed int    `json:"failed"` // number of lines whose result is Failed
	Checks []Line `json:"checks"` // in the order in which to fix problems
}

// Line is the result of one check or finding.
type Line struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	Text   string `json:"text"` // what was observed, the consequence and what to do
}

// Result says whether a check passed.
type Result string

// The results.
const (
	OK      Result = "ok"
	Warned  Result = "warning" // works today, and needs attention
	Failed  Result = "failed"
	Skipped Result = "skipped" // depends on a check that failed or was skipped
)

// marks precede the lines of a table.
var marks = map[Result]string{OK: "ok", Warned: "WARN", Failed: "FAIL", Skipped: "-"}

func newLine(f Finding) Line {
	switch {
	case f.Err == nil:
		return Line{f.Name, OK, singleLine(f.Observed)}
	case isWarning(f.Err):
		return Line{f.Name, Warned, singleLine(f.Err.Error())}
	default:
		return Line{f.Name, Failed, singleLine(f.Err.Error())}
	}
}

// Run runs the checks one after the other and writes their report to out: as a table a line after each check, else at
// the end. It returns an error if any failed.
func Run(ctx context.Context, out io.Writer, format command.Format, checks []Check) error {
	width := 0
	for _, c := range checks {
		width = max(width, utf8.RuneCountInString(c.Name))
	}
	report := Report{Checks: []Line{}}
	notPassed := map[string]bool{} // failed or skipped
	for _, c := range checks {
		if err := ctx.Err(); err != nil {
			return err
		}
		var lines []Line
		if n := slices.IndexFunc(c.DependsOn, func(name string) bool { return notPassed[name] }); n >= 0 {
			lines = []Line{{c.Name, Skipped, singleLine("skipped; depends on " + c.DependsOn[n])}}
		} else {
			lines = c.run(ctx)
		}
		notPassed[c.Name] = lines[0].Result == Failed || lines[0].Result == Skipped
		report.Checks = append(report.Checks, lines...)
		for _, line := range lines {
			width = max(width, utf8.RuneCountInString(line.Name))
			if line.Result == Failed {
				report.Failed++
			}
		}
		if format.IsTable() {
			for _, line := range lines {
				fmt.Fprintf(out, "%-4s  %-*s  %s\n", marks[line.Result], width, line.Name, line.Text)
			}
		}
	}
	if !format.IsTable() {
		if err := format.Write(out, report); err != nil {
			return err
		}
	}
	if report.Failed > 0 {
		return fmt.Errorf("%d of %d checks failed", report.Failed, len(report.Checks))
	}
	return nil
}

// run returns the check's own line, and then those of its items that have one.
func (c Check) run(ctx context.Context) []Line {
	timeout := cmp.Or(c.Timeout, DefaultTimeout)
	errTimeout := fmt.Errorf("no response within %s", timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	observed, err := c.Run(ctx)
	var items []Finding
	if summary, ok := errors.AsType[*summaryError](err); ok {
		observed, err, items = summary.Observed, summary.Err, summary.items
	} else if errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), errTimeout) {
		err = fmt.Errorf("%w: %w", errTimeout, err)
	}
	lines := []Line{newLine(Finding{c.Name, observed, err})}
	for _, item := range items {
		lines = append(lines, newLine(item))
	}
	return lines
}

// singleLine returns text as one bounded line. Part of it may come from another program.
func singleLine(text string) string {
	return display.Truncate(strings.Join(strings.Fields(display.Sanitize(text)), " "), maxTextBytes)
}
