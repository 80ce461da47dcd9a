package ionos

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"
)

// TokenSource is a file that is read each time, or a fixed token. Its errors never contain the token.
type TokenSource struct {
	File, Fixed string
}

// String returns where the token comes from.
func (t TokenSource) String() string {
	if t.File != "" {
		return "file " + t.File + " (IONOS_TOKEN_FILE)"
	}
	return "variable IONOS_TOKEN"
}

// advice explains how to replace the token.
func (t TokenSource) advice() string {
	if t.File != "" {
		return "create a new token and write it to " + t.String() + ", which is read for each request"
	}
	return "create a new token, set " + t.String() + " and restart; a token in IONOS_TOKEN_FILE needs no restart"
}

// Read returns the current token.
func (t TokenSource) Read() (string, error) {
	s := t.Fixed
	if t.File != "" {
		b, err := os.ReadFile(t.File)
		if of, ok := errors.AsType[*fs.PathError](err); ok {
			err = of.Err // without the text "token:": log processors may redact what follows it
		}
		if err != nil {
			return "", fmt.Errorf("read %s: %w", t, err)
		}
		s = string(b)
	}
	s = strings.TrimSpace(s)
	if s == "" {
		return "", fmt.Errorf("%s is empty, want a token", t)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%s has spaces or control characters, want a bare token", t)
	}
	return s, nil
}

// TokenExpiry reads the token that the next request would use. known is false if the token does not
// state its expiry.
func (c *Client) TokenExpiry() (at time.Time, known bool, err error) {
	token, err := c.transport.token.Read()
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

// Remaining life of a token at which the log and the status page warn, and at which the log
// and the page report an error.
const (
	ExpiryWarning  = 28 * 24 * time.Hour
	ExpiryCritical = 3 * 24 * time.Hour
)

const expiryLogInterval = 24 * time.Hour

// expiryWarnings are what to log when a token has no more than so much left; the first one that applies.
var expiryWarnings = [...]struct {
	left    time.Duration
	level   slog.Level
	message string
}{
	{0, slog.LevelError, "IONOS token expired; new nodes get no address"},
	{ExpiryCritical, slog.LevelError, "IONOS token expires within three days; after that, new nodes get no address"},
	{ExpiryWarning, slog.LevelWarn, "IONOS token expires within four weeks"},
}

// logExpiry logs that the token in use expires, each warning immediately and then once a day. It never logs the token.
func (t *transport) logExpiry(ctx context.Context, expires time.Time) {
	for i, w := range expiryWarnings {
		if time.Until(expires) <= w.left {
			t.expiryLogged[i].Do(func() {
				t.log.Log(ctx, w.level, w.message, "expires", expires.UTC(), "advice", t.token.advice())
			})
			return
		}
	}
}
