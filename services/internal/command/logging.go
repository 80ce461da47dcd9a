package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// LogSettings are the settings of the log, for both components' configuration structs. The zero value is
// JSON at level info.
type LogSettings struct {
	Level  string `flag:"log-level"  default:"info" enum:"debug,info,warn,error" help:"least severe level to log; debug logs each step of a change"`
	Format string `flag:"log-format" default:"json" enum:"json,text"             help:"format of log lines: JSON objects, or key=value pairs for reading at a terminal"`
}

// NewLogger returns a logger that writes one line per record to w, with a limit for equal messages; see flood.
func (s LogSettings) NewLogger(w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cmp.Or(s.Level, "info"))); err != nil {
		panic(err) // package settings accepts no other level
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if s.Format == "text" {
		return slog.New(newFlood(slog.NewTextHandler(w, options)))
	}
	return slog.New(newFlood(slog.NewJSONHandler(w, options)))
}

// readable writes times with milliseconds and durations as text. JSON would have nanoseconds of both.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindTime:
		a.Value = slog.StringValue(a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// captureGlobalLoggers makes log the logger of the whole process: of slog's default, klog and grpc.
// Call it once, first in main, because grpc's logger cannot be replaced safely while grpc is in use
// (see grpclog.SetLoggerV2).
func captureGlobalLoggers(log *slog.Logger) {
	slog.SetDefault(log)
	klog.SetSlogLogger(log.With("library", "client-go"))
	grpclog.SetLoggerV2(&grpcLog{log.With("library", "grpc")})
}

// grpcLog writes grpc's lines to the log. Infos and warnings become Debug lines: grpc writes them for
// every connection, and the code that opened the connection reports its failures. Fatal panics instead
// of ending the process, so that deferred functions run.
type grpcLog struct{ log *slog.Logger }

func formatArgs(args ...any) string { return strings.TrimSpace(fmt.Sprintln(args...)) }

func (g *grpcLog) debug(text func() string) {
	if g.log.Enabled(context.Background(), slog.LevelDebug) {
		g.log.Debug("grpc", "text", text())
	}
}

func (g *grpcLog) Info(args ...any)   { g.debug(func() string { return formatArgs(args...) }) }
func (g *grpcLog) Infoln(args ...any) { g.debug(func() string { return formatArgs(args...) }) }
func (g *grpcLog) Infof(f string, args ...any) {
	g.debug(func() string { return fmt.Sprintf(f, args...) })
}

func (g *grpcLog) Warning(args ...any)   { g.Info(args...) }
func (g *grpcLog) Warningln(args ...any) { g.Info(args...) }
func (g *grpcLog) Warningf(f string, args ...any) {
	g.Infof(f, args...)
}

func (g *grpcLog) Error(args ...any)   { g.log.Error("grpc", "text", formatArgs(args...)) }
func (g *grpcLog) Errorln(args ...any) { g.log.Error("grpc", "text", formatArgs(args...)) }
func (g *grpcLog) Errorf(f string, args ...any) {
	g.log.Error("grpc", "text", fmt.Sprintf(f, args...))
}

func (g *grpcLog) Fatal(args ...any)            { panic(formatArgs(args...)) }
func (g *grpcLog) Fatalln(args ...any)          { panic(formatArgs(args...)) }
func (g *grpcLog) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

func (g *grpcLog) V(level int) bool { return level <= 0 }
