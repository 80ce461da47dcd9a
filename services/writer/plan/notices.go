package plan

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

// NoticeHandler is the log handler of an interactive command: it prints each warning once, as a line of
// text, since most repeat with every attempt. It keeps the last one, to explain a timeout.
type NoticeHandler struct {
	*noticeState

	attrs []slog.Attr
}

type noticeState struct {
	mu      sync.Mutex
	out     io.Writer
	printed map[string]bool
	last    string
}

// NewNoticeHandler returns a NoticeHandler that prints to out.
func NewNoticeHandler(out io.Writer) NoticeHandler {
	return NoticeHandler{noticeState: &noticeState{out: out, printed: map[string]bool{}}}
}

// Enabled accepts warnings and errors.
func (NoticeHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

// WithAttrs adds attributes to every line.
func (n NoticeHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return NoticeHandler{n.noticeState, append(slices.Clip(n.attrs), attrs...)}
}

// WithGroup does nothing: no stage uses groups.
func (n NoticeHandler) WithGroup(string) slog.Handler { return n }

// Handle prints a line unless it was printed before.
func (n NoticeHandler) Handle(_ context.Context, r slog.Record) error {
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
	_, err := fmt.Fprintf(n.out, "  waiting: %s\n", text)
	return err
}

// WithLastNotice adds the last warning to an error.
func (n NoticeHandler) WithLastNotice(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil || n.last == "" {
		return err
	}
	return fmt.Errorf("%w; last warning: %s", err, n.last)
}
