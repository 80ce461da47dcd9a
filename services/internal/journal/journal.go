// Package journal is the one stream of log lines that a process writes: JSON, a line each,
// and what klog and grpc say goes into the same stream. A package of its own because mains
// need it before anything that could bring it along, and `log` is taken.
package journal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// New makes the stream's logger.
func New(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// Adopt makes it the logger of the whole process: slog's default, klog and grpc. Call it
// once, first in main: grpc's logger cannot be exchanged safely while grpc is in use.
func Adopt(log *slog.Logger) {
	slog.SetDefault(log)
	klog.SetSlogLogger(log.With("component", "client-go"))
	grpclog.SetLoggerV2(&grpcLog{log.With("component", "grpc")})
}

// grpcLog takes what grpc says. Its infos and warnings are a running commentary on every
// connection, failed ones included, which whoever made it tells in words of ours: so they
// are debugging here, and cost nothing while nobody debugs. What it calls fatal it believes
// to end the process, which no library of ours may do.
type grpcLog struct{ log *slog.Logger }

func text(args ...any) string { return strings.TrimSpace(fmt.Sprintln(args...)) }

func (g *grpcLog) comment(text func() string) {
	if g.log.Enabled(context.Background(), slog.LevelDebug) {
		g.log.Debug("grpc says", "text", text())
	}
}

func (g *grpcLog) Info(args ...any)   { g.comment(func() string { return text(args...) }) }
func (g *grpcLog) Infoln(args ...any) { g.comment(func() string { return text(args...) }) }
func (g *grpcLog) Infof(f string, args ...any) {
	g.comment(func() string { return fmt.Sprintf(f, args...) })
}

func (g *grpcLog) Warning(args ...any)   { g.Info(args...) }
func (g *grpcLog) Warningln(args ...any) { g.Info(args...) }
func (g *grpcLog) Warningf(f string, args ...any) {
	g.Infof(f, args...)
}

func (g *grpcLog) Error(args ...any)   { g.log.Error("grpc says", "text", text(args...)) }
func (g *grpcLog) Errorln(args ...any) { g.log.Error("grpc says", "text", text(args...)) }
func (g *grpcLog) Errorf(f string, args ...any) {
	g.log.Error("grpc says", "text", fmt.Sprintf(f, args...))
}

func (g *grpcLog) Fatal(args ...any)            { panic(text(args...)) }
func (g *grpcLog) Fatalln(args ...any)          { panic(text(args...)) }
func (g *grpcLog) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

func (g *grpcLog) V(level int) bool { return level <= 0 }
