package tracepoint

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
)

func TestDoesNotAllocateWhenDisabled(t *testing.T) {
	log := slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // its level disables Debug, as in production
	service := strings.Repeat("a", 20)
	if n := testing.AllocsPerRun(100, func() {
		Mark(Plan)
		Log(log, Plan, slog.String("service", service), slog.Int("create", len(service)), slog.Bool("reset", true))
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func TestLogsAtDebug(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	Log(log, DeltaApplied, slog.Uint64("revision", 7))
	if got := out.String(); !Enabled(log) || !strings.HasSuffix(got, `level=DEBUG msg="delta applied" revision=7`+"\n") {
		t.Errorf("got %s", got)
	}
}
