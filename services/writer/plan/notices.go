package plan

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
)

// Notices prints the log of an interactive command: each warning once, since most repeat with every attempt. It
// keeps the last one, to explain a timeout.
type Notices struct {
	mu      sync.Mutex
	out     io.Writer
	printed map[string]bool
	last    string
}

// NewNotices returns Notices that print to out.
func NewNotices(out io.Writer) *Notices { return &Notices{out: out, printed: map[string]bool{}} }

// Logger returns the logger whose warnings are printed. Attributes that vary with each attempt are left out.
func (n *Notices) Logger() *slog.Logger {
	kept := []string{slog.MessageKey, "source", "error"}
	return slog.New(
		slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if !slices.Contains(kept, a.Key) {
				return slog.Attr{}
			}
			return a
		}}),
	)
}

// Write prints a line of the log unless it was printed before.
func (n *Notices) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = string(line[:len(line)-1])
	if n.printed[n.last] {
		return len(line), nil
	}
	n.printed[n.last] = true
	_, err := fmt.Fprintf(n.out, "  waiting: %s\n", n.last)
	return len(line), err
}

// WithLastNotice adds the last warning to an error.
func (n *Notices) WithLastNotice(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil || n.last == "" {
		return err
	}
	return fmt.Errorf("%w; last warning: %s", err, n.last)
}
