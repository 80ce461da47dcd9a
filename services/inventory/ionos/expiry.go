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

// When people are told that the token ends, and when louder.
const (
	expiryWarning     = 28 * 24 * time.Hour
	expiryCritical    = 3 * 24 * time.Hour
	expiryLogInterval = 24 * time.Hour
)

// TokenExpiry reads the token that the next request would bear. It is not known of a
// token that does not say.
func (c *Client) TokenExpiry() (at time.Time, known bool, err error) {
	token, err := c.token.read()
	if err != nil {
		return time.Time{}, false, err
	}
	at, known = parseExpiry(token)
	return at, known, nil
}

// parseExpiry is the time in the token's exp, if it is a JWT that has one. It is for people's
// eyes only, so the signature does not matter.
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

// expiryLevel is how near the end of a token is.
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
	case left <= expiryCritical:
		return expiryInDays
	case left <= expiryWarning:
		return expiryInWeeks
	}
	return expiryDistant
}

// expiryLogger tells people that the token in use ends: at once, then once a day, and at once
// again when it becomes worse. It never says the token.
type expiryLogger struct {
	log    *slog.Logger
	advice string

	mu          sync.Mutex
	loggedAt    time.Time
	loggedLevel expiryLevel // that was told
}

func (r *expiryLogger) logExpiry(ctx context.Context, now, expires time.Time) {
	level := expiryLevelOf(expires.Sub(now))
	r.mu.Lock()
	due := level > r.loggedLevel || level != expiryDistant && now.Sub(r.loggedAt) >= expiryLogInterval
	if due {
		r.loggedAt, r.loggedLevel = now, level
	} else if level == expiryDistant {
		r.loggedLevel = expiryDistant // a new token has come: its own end is told at once again
	}
	r.mu.Unlock()
	if !due {
		return
	}
	attrs := []any{"expires", expires.UTC(), "do", r.advice}
	switch level {
	case expiryInWeeks:
		r.log.WarnContext(ctx, "the IONOS token expires within four weeks", attrs...)
	case expiryInDays:
		r.log.ErrorContext(ctx, "THE IONOS TOKEN EXPIRES WITHIN THREE DAYS, after which no new node gets an address", attrs...)
	case expiryPassed:
		r.log.ErrorContext(ctx, "THE IONOS TOKEN HAS EXPIRED, no new node gets an address until it is replaced", attrs...)
	}
}
