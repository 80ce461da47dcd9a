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
	// Run returns what it observed. Its error has what is wrong, the consequence and what to do.
	Run func(ctx context.Context) (observed string, err error)
	// FollowUps returns checks that run next. It is called after Run, even if that failed; may be nil.
	FollowUps func() []Check
}

// warningError is an error that does not fail a check.
type warningError struct{ text string }

func (w warningError) Error() string { return w.text }

// Warning returns an error for Check.Run about something that works, but needs the attention of a
// person.
func Warning(format string, args ...any) error { return warningError{fmt.Sprintf(format, args...)} }

// Run runs the checks one after the other, and writes a line to out after each. It returns an error if
// any failed.
func Run(ctx context.Context, out io.Writer, checks []Check) error {
	width, failed := 0, 0
	notPassed := map[string]bool{} // failed or skipped
	for i := 0; i < len(checks); i++ {
		c := checks[i]
		for _, c := range checks[i:] {
			width = max(width, utf8.RuneCountInString(c.Name))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var mark, text string
		if n := slices.IndexFunc(c.DependsOn, func(name string) bool { return notPassed[name] }); n >= 0 {
			mark, text = "-", "skipped; depends on "+c.DependsOn[n]
			notPassed[c.Name] = true
		} else if observed, err := c.runWithTimeout(ctx); err != nil {
			mark, text = "WARN", err.Error()
			if !errors.As(err, new(warningError)) {
				mark, notPassed[c.Name] = "FAIL", true
				failed++
			}
		} else {
			mark, text = "ok", observed
		}
		fmt.Fprintf(out, "%-4s  %-*s  %s\n", mark, width, c.Name, singleLine(text))
		if c.FollowUps != nil && mark != "-" {
			checks = slices.Concat(checks[:i+1], c.FollowUps(), checks[i+1:])
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks))
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
