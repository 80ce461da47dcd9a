package ionoshttp

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestLogsExpiryOfNewTokenImmediately(t *testing.T) {
	var log bytes.Buffer
	r := &expiryLogger{log: slog.New(slog.NewTextHandler(&log, nil))}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, left := range []time.Duration{time.Hour, 300 * 24 * time.Hour, 20 * 24 * time.Hour, 20 * 24 * time.Hour} {
		r.logExpiry(context.Background(), now, now.Add(left))
		now = now.Add(time.Minute)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, log.String())
	}
}

func TestShortLivedTokensAreLoggedDaily(t *testing.T) {
	for name, tc := range map[string]struct{ every, lines int }{
		"in time":                     {50, 2},
		"a little too late each time": {62, 4}, // its expiry is logged too
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			r := &expiryLogger{log: slog.New(slog.NewTextHandler(&log, nil))}
			now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
			for minute := range 48 * 60 {
				r.logExpiry(context.Background(), now, now.Add(time.Duration(60-minute%tc.every)*time.Minute))
				now = now.Add(time.Minute)
			}
			if n := strings.Count(log.String(), "\n"); n != tc.lines {
				t.Errorf("%d lines in two days, want %d", n, tc.lines)
			}
		})
	}
}
