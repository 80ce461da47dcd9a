// Package preflight checks the dependencies of a component before it runs, and prints one line for each
// check with what to do. It guarantees that each check ends within its timeout, and that its result is
// one line that is safe for a terminal, whatever text it contains. It does not change anything.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// DefaultTimeout is the timeout of checks that do not set their own.
const DefaultTimeout = 15 * time.Second

// maxTextBytes bounds the text of a line after the check's name.
const maxTextBytes = 600

// Check is one dependency to check.
type Check struct {
	Name string
	// DependsOn are names of earlier checks. If one of them failed or was skipped, this check is
	// skipped.
	DependsOn []string
	// Timeout bounds Run; 0: DefaultTimeout.
	Timeout time.Duration
	// Run returns what it observed. Its error has what is wrong, the consequence and what to do. A check
	// of many items returns what Summarize does.
	Run func(ctx context.Context) (observed string, err error)
}

// warningError is an error that does not fail a check.
type warningError struct{ text string }

func (w warningError) Error() string { return w.text }

// Warning returns an error for Check.Run about something that works, but needs the attention of a
// person.
func Warning(format string, args ...any) error { return warningError{fmt.Sprintf(format, args...)} }

func isWarning(err error) bool { return errors.As(err, new(warningError)) }

// printer prints one line for each result.
type printer struct {
	out           io.Writer
	width         int // of the names
	lines, failed int
}

// fitName makes the column of names wide enough for a name that will be printed.
func (p *printer) fitName(name string) { p.width = max(p.width, utf8.RuneCountInString(name)) }

func (p *printer) print(mark, name, text string) {
	p.lines++
	fmt.Fprintf(p.out, "%-4s  %-*s  %s\n", mark, p.width, name, singleLine(text))
}

func (p *printer) printResult(name, observed string, err error) {
	switch {
	case err == nil:
		p.print("ok", name, observed)
	case isWarning(err):
		p.print("WARN", name, err.Error())
	default:
		p.failed++
		p.print("FAIL", name, err.Error())
	}
}

// Run runs the checks one after the other, and writes a line to out after each. It returns an error if
// any failed.
func Run(ctx context.Context, out io.Writer, checks []Check) error {
	p := printer{out: out}
	for _, c := range checks {
		p.fitName(c.Name)
	}
	notPassed := map[string]bool{} // failed or skipped
	for _, c := range checks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n := slices.IndexFunc(c.DependsOn, func(name string) bool { return notPassed[name] }); n >= 0 {
			notPassed[c.Name] = true
			p.print("-", c.Name, "skipped; depends on "+c.DependsOn[n])
			continue
		}
		observed, err := c.runWithTimeout(ctx)
		group, isGroup := errors.AsType[*groupError](err)
		if isGroup {
			observed, err = group.summary, group.err
		}
		notPassed[c.Name] = err != nil && !isWarning(err)
		p.printResult(c.Name, observed, err)
		if isGroup {
			p.printFindings(group.prefix, group.findings)
		}
	}
	if p.failed > 0 {
		return fmt.Errorf("%d of %d checks failed", p.failed, p.lines)
	}
	return nil
}

func (c Check) runWithTimeout(ctx context.Context) (string, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	errTimeout := fmt.Errorf("no response within %s", timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	observed, err := c.Run(ctx)
	if err != nil && errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), errTimeout) {
		err = fmt.Errorf("%w: %w", errTimeout, err)
	}
	return observed, err
}

// singleLine returns text as one bounded line. Part of it may come from another program.
func singleLine(text string) string {
	return display.Truncate(strings.Join(strings.Fields(display.Sanitize(text)), " "), maxTextBytes)
}
