package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestNewLogger(t *testing.T) {
	for _, tt := range []struct {
		settings Settings
		want     []string // how each line continues after its time
	}{
		{Settings{}, []string{`"level":"INFO","msg":"b","k":1}`, `"level":"WARN","msg":"c","k":1}`, `"level":"ERROR","msg":"d","k":1}`}},
		{Settings{Level: "debug", Format: "json"}, []string{`"level":"DEBUG","msg":"a","k":1}`, `"level":"INFO","msg":"b","k":1}`, `"level":"WARN","msg":"c","k":1}`, `"level":"ERROR","msg":"d","k":1}`}},
		{Settings{Level: "info", Format: "text"}, []string{`level=INFO msg=b k=1`, `level=WARN msg=c k=1`, `level=ERROR msg=d k=1`}},
		{Settings{Level: "warn", Format: "text"}, []string{`level=WARN msg=c k=1`, `level=ERROR msg=d k=1`}},
		{Settings{Level: "error", Format: "text"}, []string{`level=ERROR msg=d k=1`}},
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
