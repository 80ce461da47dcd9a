package command

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

func TestCapturesKlogAndGRPC(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	captureGlobalLoggers(LogSettings{}.NewLogger(&out))
	t.Cleanup(func() { slog.SetDefault(before); klog.ClearLogger() })

	slog.Info("component")
	klog.ErrorS(nil, "library")
	klog.Flush()
	grpclog.Errorln("library", 2)
	grpclog.Warning("at Debug")
	grpclog.Info("at Debug")

	type line struct{ Level, Msg, Library, Text string }
	var got []line
	for d := json.NewDecoder(&out); d.More(); {
		var l line
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	want := []line{
		{"INFO", "component", "", ""},
		{"ERROR", "library", "client-go", ""},
		{"ERROR", "grpc", "grpc", "library 2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNewLogger(t *testing.T) {
	for _, tt := range []struct {
		settings LogSettings
		want     []string // how each line continues after its time
	}{
		{LogSettings{}, []string{`"level":"INFO","msg":"b","k":1}`, `"level":"WARN","msg":"c","k":1}`, `"level":"ERROR","msg":"d","k":1}`}},
		{LogSettings{Level: "debug", Format: "json"}, []string{`"level":"DEBUG","msg":"a","k":1}`, `"level":"INFO","msg":"b","k":1}`, `"level":"WARN","msg":"c","k":1}`, `"level":"ERROR","msg":"d","k":1}`}},
		{LogSettings{Level: "info", Format: "text"}, []string{`level=INFO msg=b k=1`, `level=WARN msg=c k=1`, `level=ERROR msg=d k=1`}},
		{LogSettings{Level: "warn", Format: "text"}, []string{`level=WARN msg=c k=1`, `level=ERROR msg=d k=1`}},
		{LogSettings{Level: "error", Format: "text"}, []string{`level=ERROR msg=d k=1`}},
	} {
		t.Run(tt.settings.Level+tt.settings.Format, func(t *testing.T) {
			var out bytes.Buffer
			log := tt.settings.NewLogger(&out)
			for i, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
				log.Log(t.Context(), level, string(rune('a'+i)), "k", 1)
			}
			got := strings.Split(strings.TrimSpace(out.String()), "\n")
			if len(got) != len(tt.want) {
				t.Fatalf("got:\n%s", out.String())
			}
			for i, want := range tt.want {
				if !strings.HasSuffix(got[i], want) {
					t.Errorf("line %d is %s, want it to end with %s", i, got[i], want)
				}
			}
		})
	}
}
