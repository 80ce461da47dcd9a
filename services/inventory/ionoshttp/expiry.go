package ionoshttp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Remaining life of a token at which the log and the status page warn, and at which the log
// and the page report an error.
const (
	ExpiryWarning  = 28 * 24 * time.Hour
	ExpiryCritical = 3 * 24 * time.Hour
)

const expiryLogInterval = 24 * time.Hour

// ParseExpiry returns the exp claim of a token that is a JWT (RFC 7519). It only informs people, so that
// the signature does not matter.
func ParseExpiry(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return time.Time{}, false
	}
	var claims struct {
		Exp *float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Exp == nil || *claims.Exp <= 0 || *claims.Exp > 1<<40 {
		return time.Time{}, false
	}
	return time.Unix(int64(*claims.Exp), 0), true
}

// expiryWarnings are what to log when a token has no more than so much left.
var expiryWarnings = []struct {
	left    time.Duration
	level   slog.Level
	message string
}{
	{ExpiryWarning, slog.LevelWarn, "IONOS token expires within four weeks"},
	{ExpiryCritical, slog.LevelError, "IONOS token expires within three days; after that, new nodes get no address"},
	{0, slog.LevelError, "IONOS token expired; new nodes get no address"},
}

// expiryLogger logs that the token in use expires: immediately, then once a day, and immediately again
// when it reaches the next warning. It never logs the token.
type expiryLogger struct {
	log    *slog.Logger
	advice string

	mu       sync.Mutex
	loggedAt time.Time
	logged   int // warnings that the token had reached at the last log line
}

func (l *expiryLogger) logExpiry(ctx context.Context, now, expires time.Time) {
	reached := 0
	for reached < len(expiryWarnings) && expires.Sub(now) <= expiryWarnings[reached].left {
		reached++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if reached == 0 {
		l.logged = 0 // a new token: its expiry is logged immediately again
	}
	if reached > l.logged || reached > 0 && now.Sub(l.loggedAt) >= expiryLogInterval {
		l.loggedAt, l.logged = now, reached
		w := expiryWarnings[reached-1]
		l.log.Log(ctx, w.level, w.message, "expires", expires.UTC(), "advice", l.advice)
	}
}
