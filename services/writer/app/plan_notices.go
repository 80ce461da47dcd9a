package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// notices is a log for people who wait at a terminal: each warning once, as a line of text. Most
// of them repeat with every attempt, so the last is kept too, to say what the wait ended with.
type notices struct {
	*noticed

	attrs []slog.Attr
}

type noticed struct {
	mu   sync.Mutex
	out  io.Writer
	said map[string]bool
	last string
}

func newNotices(out io.Writer) notices {
	return notices{noticed: &noticed{out: out, said: map[string]bool{}}}
}

// Enabled takes warnings and errors.
func (notices) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// WithAttrs adds to what every line says.
func (n notices) WithAttrs(attrs []slog.Attr) slog.Handler {
	return notices{n.noticed, append(slices.Clip(n.attrs), attrs...)}
}

// WithGroup is not used by what is logged here.
func (n notices) WithGroup(string) slog.Handler { return n }

// Handle writes a line that was not written before.
func (n notices) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	var cause string
	add := func(a slog.Attr) bool {
		switch a.Key {
		case "error":
			cause = ": " + a.Value.String()
		case "source":
			fmt.Fprintf(&line, "source %s: ", a.Value)
		}
		return true
	}
	for _, a := range n.attrs {
		add(a)
	}
	r.Attrs(add)
	text := display.Sanitize(line.String() + r.Message + cause)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = text
	if n.said[text] {
		return nil
	}
	n.said[text] = true
	_, err := fmt.Fprintf(n.out, "  not yet: %s\n", text)
	return err
}

// because adds to an error what was noticed last.
func (n notices) because(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil || n.last == "" {
		return err
	}
	return fmt.Errorf("%w; the last that went wrong: %s", err, n.last)
}
