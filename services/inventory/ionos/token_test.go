package ionos

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLogsExpiryOfNewTokenImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newTransport(nil, TokenSource{}, nil, slog.New(slog.NewTextHandler(&log, nil)))
		for _, left := range []time.Duration{time.Hour, 300 * 24 * time.Hour, 20 * 24 * time.Hour, 20 * 24 * time.Hour} {
			r.logExpiry(t.Context(), time.Now().Add(left))
			time.Sleep(time.Minute)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines, want 2:\n%s", n, log.String())
		}
	})
}

func TestShortLivedTokensAreLoggedDaily(t *testing.T) {
	for name, tc := range map[string]struct{ every, lines int }{
		"in time":                     {50, 2},
		"a little too late each time": {62, 4}, // its expiry is logged too
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				r := newTransport(nil, TokenSource{}, nil, slog.New(slog.NewTextHandler(&log, nil)))
				for minute := range 48 * 60 {
					r.logExpiry(t.Context(), time.Now().Add(time.Duration(60-minute%tc.every)*time.Minute))
					time.Sleep(time.Minute)
				}
				if n := strings.Count(log.String(), "\n"); n != tc.lines {
					t.Errorf("%d lines in two days, want %d", n, tc.lines)
				}
			})
		})
	}
}
