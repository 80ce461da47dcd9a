// Package preflight asks what a half depends on before it runs, one line for each check with
// what to do. It promises that each ends within its time and that the answer is one line
// fit for a terminal, whoever wrote it. It refuses to change anything: checks only ask.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// DefaultTimeout is how long a check may take that does not say otherwise.
const DefaultTimeout = 15 * time.Second

// maxTextBytes bounds what a line says of a check, in bytes.
const maxTextBytes = 600

// Check is one question.
type Check struct {
	Name string
	// DependsOn are names of earlier checks without which this one makes no sense: it is
	// skipped if one of them failed or was skipped itself.
	DependsOn []string
	// Timeout is how long it may take; 0: Patience.
	Timeout time.Duration
	// Run returns what was seen if all is well. An error says what is wrong and what to do.
	Run func(ctx context.Context) (saw string, err error)
	// FollowUps is asked after Run, however that ended, for checks of what it found: they are made
	// next. Nil: there are none.
	FollowUps func() []Check
}

// warningError is an error that fails nothing.
type warningError struct{ text string }

func (w warningError) Error() string { return w.text }

// Warning is an error of Check.Run for what works today, and wants someone's attention.
func Warning(format string, args ...any) error { return warningError{fmt.Sprintf(format, args...)} }

// Run makes the checks, one after the other, and writes a line for each to out when it is
// done. Its error says how many failed; nil: none did.
func Run(ctx context.Context, out io.Writer, checks []Check) error {
	width, failed := 0, 0
	without := map[string]bool{} // that did not pass
	for i := 0; i < len(checks); i++ {
		c := checks[i]
		for _, c := range checks[i:] {
			width = max(width, utf8.RuneCountInString(c.Name))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var mark, text string
		if n := slices.IndexFunc(c.DependsOn, func(name string) bool { return without[name] }); n >= 0 {
			mark, text = "-", "skipped, since it needs: "+c.DependsOn[n]
			without[c.Name] = true
		} else if saw, err := c.runWithTimeout(ctx); err != nil {
			mark, text = "WARN", err.Error()
			if !errors.As(err, new(warningError)) {
				mark, without[c.Name] = "FAIL", true
				failed++
			}
		} else {
			mark, text = "ok", saw
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
	within := c.Timeout
	if within == 0 {
		within = DefaultTimeout
	}
	late := fmt.Errorf("no answer within %s", within)
	ctx, cancel := context.WithTimeoutCause(ctx, within, late)
	defer cancel()
	saw, err := c.Run(ctx)
	if err != nil && errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), late) {
		err = fmt.Errorf("%w: %w", late, err)
	}
	return saw, err
}

// singleLine makes one bounded line of any text: part of it may be a stranger's.
func singleLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxTextBytes {
		text = strings.ToValidUTF8(text[:maxTextBytes], "") + "…"
	}
	return text
}
