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
	expiresSoon   = 28 * 24 * time.Hour
	expiresAtOnce = 3 * 24 * time.Hour
	remindEvery   = 24 * time.Hour
)

// TokenExpiry reads the token that the next request would bear. It is not known of a
// token that does not say.
func (c *Client) TokenExpiry() (at time.Time, known bool, err error) {
	token, err := c.token.read()
	if err != nil {
		return time.Time{}, false, err
	}
	at, known = expiry(token)
	return at, known, nil
}

// expiry is the time in the token's exp, if it is a JWT that has one. It is for people's
// eyes only, so the signature does not matter.
func expiry(token string) (time.Time, bool) {
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

// alarm is how near the end of a token is.
type alarm int

const (
	noAlarm alarm = iota
	weeksLeft
	daysLeft
	expired
)

func alarmOf(left time.Duration) alarm {
	switch {
	case left <= 0:
		return expired
	case left <= expiresAtOnce:
		return daysLeft
	case left <= expiresSoon:
		return weeksLeft
	}
	return noAlarm
}

// reminder tells people that the token in use ends: at once, then once a day, and at once
// again when it becomes worse. It never says the token.
type reminder struct {
	log    *slog.Logger
	advice string

	mu    sync.Mutex
	told  time.Time
	level alarm // that was told
}

func (r *reminder) saw(ctx context.Context, now, expires time.Time) {
	level := alarmOf(expires.Sub(now))
	r.mu.Lock()
	due := level > r.level || level != noAlarm && now.Sub(r.told) >= remindEvery
	if due {
		r.told, r.level = now, level
	} else if level == noAlarm {
		r.level = noAlarm // a new token has come: its own end is told at once again
	}
	r.mu.Unlock()
	if !due {
		return
	}
	about := []any{"expires", expires.UTC(), "do", r.advice}
	switch level {
	case weeksLeft:
		r.log.WarnContext(ctx, "the IONOS token expires within four weeks", about...)
	case daysLeft:
		r.log.ErrorContext(ctx, "THE IONOS TOKEN EXPIRES WITHIN THREE DAYS, after which no new node gets an address", about...)
	case expired:
		r.log.ErrorContext(ctx, "THE IONOS TOKEN HAS EXPIRED, no new node gets an address until it is replaced", about...)
	}
}
