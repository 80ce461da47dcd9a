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

// noticeHandler is a log for people who wait at a terminal: each warning once, as a line of text. Most
// of them repeat with every attempt, so the last is kept too, to say what the wait ended with.
type noticeHandler struct {
	*noticeState

	attrs []slog.Attr
}

type noticeState struct {
	mu      sync.Mutex
	out     io.Writer
	printed map[string]bool
	last    string
}

func newNoticeHandler(out io.Writer) noticeHandler {
	return noticeHandler{noticeState: &noticeState{out: out, printed: map[string]bool{}}}
}

// Enabled takes warnings and errors.
func (noticeHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

// WithAttrs adds to what every line says.
func (n noticeHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return noticeHandler{n.noticeState, append(slices.Clip(n.attrs), attrs...)}
}

// WithGroup is not used by what is logged here.
func (n noticeHandler) WithGroup(string) slog.Handler { return n }

// Handle writes a line that was not written before.
func (n noticeHandler) Handle(_ context.Context, r slog.Record) error {
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
	if n.printed[text] {
		return nil
	}
	n.printed[text] = true
	_, err := fmt.Fprintf(n.out, "  not yet: %s\n", text)
	return err
}

// withLastNotice adds to an error what was noticed last.
func (n noticeHandler) withLastNotice(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil || n.last == "" {
		return err
	}
	return fmt.Errorf("%w; the last that went wrong: %s", err, n.last)
}
