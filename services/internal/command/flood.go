package command

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// How many lines with one message about one object are written in a window.
const (
	maxLines = 20
	window   = time.Minute
)

// objectKeys are the attributes that say what a line is about, among those whose number no peer decides.
var objectKeys = []string{"source", "namespace", "service", "slice", "link", "peer.san"}

// flood limits lines with the same message about the same object, since peers and tenants decide how many there are: a
// source with dying backends wrote 1,000 lines a second. When the window is over, one line has the number of those that
// were left out. Debug lines are not limited.
type flood struct {
	slog.Handler

	object []slog.Attr // of With
	counts *counts
}

type counts struct {
	mu    sync.Mutex
	lines map[string]int // in the current window, by message and object
}

func newFlood(h slog.Handler) *flood {
	return &flood{Handler: h, counts: &counts{lines: map[string]int{}}}
}

// Handle implements slog.Handler.
func (f *flood) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return f.Handler.Handle(ctx, r)
	}
	object := slices.Clip(f.object)
	r.Attrs(func(a slog.Attr) bool { object = appendObject(object, a); return true })
	key := fmt.Sprint(r.Message, object)
	f.counts.mu.Lock()
	f.counts.lines[key]++
	n := f.counts.lines[key]
	f.counts.mu.Unlock()
	if n == 1 {
		time.AfterFunc(window, func() {
			f.endWindow(context.WithoutCancel(ctx), key, r.Level, r.Message, object[len(f.object):])
		})
	}
	if n > maxLines {
		return nil
	}
	return f.Handler.Handle(ctx, r)
}

func (f *flood) endWindow(ctx context.Context, key string, level slog.Level, message string, object []slog.Attr) {
	f.counts.mu.Lock()
	omitted := f.counts.lines[key] - maxLines
	delete(f.counts.lines, key)
	f.counts.mu.Unlock()
	if omitted > 0 {
		r := slog.NewRecord(time.Now(), level, "lines left out", 0)
		r.AddAttrs(append(object, slog.String("of", message), slog.Int("count", omitted))...)
		_ = f.Handler.Handle(ctx, r)
	}
}

// WithAttrs implements slog.Handler.
func (f *flood) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &flood{f.Handler.WithAttrs(attrs), appendObject(slices.Clone(f.object), attrs...), f.counts}
}

// WithGroup implements slog.Handler.
func (f *flood) WithGroup(name string) slog.Handler {
	return &flood{f.Handler.WithGroup(name), f.object, f.counts}
}

func appendObject(object []slog.Attr, attrs ...slog.Attr) []slog.Attr {
	for _, a := range attrs {
		if slices.Contains(objectKeys, a.Key) {
			object = append(object, a)
		}
	}
	return object
}
