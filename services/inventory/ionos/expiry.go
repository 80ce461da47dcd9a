package ionos

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Remaining life of a token at which the log, the status page and preflight warn, and at which the log
// and the page report an error.
const (
	ExpiryWarning  = 28 * 24 * time.Hour
	ExpiryCritical = 3 * 24 * time.Hour
)

const expiryLogInterval = 24 * time.Hour

// TokenExpiry reads the token that the next request would use. known is false if the token does not
// state its expiry.
func (c *Client) TokenExpiry() (at time.Time, known bool, err error) {
	token, err := c.token.read()
	if err != nil {
		return time.Time{}, false, err
	}
	at, known = parseExpiry(token)
	return at, known, nil
}

// parseExpiry returns the exp claim of a token that is a JWT (RFC 7519). It only informs people, so that
// the signature does not matter.
func parseExpiry(token string) (time.Time, bool) {
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

// expiryLevel is how close the expiry of a token is.
type expiryLevel int

const (
	expiryDistant expiryLevel = iota
	expiryInWeeks
	expiryInDays
	expiryPassed
)

func expiryLevelOf(left time.Duration) expiryLevel {
	switch {
	case left <= 0:
		return expiryPassed
	case left <= ExpiryCritical:
		return expiryInDays
	case left <= ExpiryWarning:
		return expiryInWeeks
	}
	return expiryDistant
}

// expiryLogger logs that the token in use expires: immediately, then once a day, and immediately again
// when the level rises. It never logs the token.
type expiryLogger struct {
	log    *slog.Logger
	advice string

	mu          sync.Mutex
	loggedAt    time.Time
	loggedLevel expiryLevel // level of the last log line
}

func (l *expiryLogger) logExpiry(ctx context.Context, now, expires time.Time) {
	level := expiryLevelOf(expires.Sub(now))
	l.mu.Lock()
	due := level > l.loggedLevel || level != expiryDistant && now.Sub(l.loggedAt) >= expiryLogInterval
	if due {
		l.loggedAt, l.loggedLevel = now, level
	} else if level == expiryDistant {
		l.loggedLevel = expiryDistant // a new token: its expiry is logged immediately again
	}
	l.mu.Unlock()
	if !due {
		return
	}
	attrs := []any{"expires", expires.UTC(), "advice", l.advice}
	switch level {
	case expiryInWeeks:
		l.log.WarnContext(ctx, "IONOS token expires within four weeks", attrs...)
	case expiryInDays:
		l.log.ErrorContext(ctx, "IONOS token expires within three days; after that, new nodes get no address", attrs...)
	case expiryPassed:
		l.log.ErrorContext(ctx, "IONOS token expired; new nodes get no address", attrs...)
	}
}
