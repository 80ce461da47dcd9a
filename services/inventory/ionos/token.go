package ionos

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// tokenSource is a file that is read anew each time, or a fixed token. No error of its
// own contains any of the token.
type tokenSource struct {
	file, fixed string
}

// String says where the token comes from, for messages that tell people what to check.
func (t tokenSource) String() string {
	if t.file != "" {
		return "the file " + t.file + " (IONOS_TOKEN_FILE)"
	}
	return "the variable IONOS_TOKEN"
}

// check finds what can be found without the cloud. A file may come later: secrets are
// often mounted after the start.
func (t tokenSource) check() error {
	switch {
	case t.file == "" && t.fixed == "":
		return errors.New("no token: give IONOS_TOKEN_FILE or IONOS_TOKEN")
	case t.file != "" && t.fixed != "":
		return errors.New("IONOS_TOKEN and IONOS_TOKEN_FILE are both given: expected one")
	case t.file == "":
		_, err := t.read()
		return err
	}
	return nil
}

func (t tokenSource) read() (string, error) {
	s := t.fixed
	if t.file != "" {
		f, err := os.Open(t.file)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		defer f.Close() //nolint:errcheck // it is only read
		b, err := io.ReadAll(io.LimitReader(f, 64<<10))
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		s = string(b)
	}
	s = strings.TrimSpace(s)
	if s == "" {
		return "", fmt.Errorf("%s holds no token", t)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%s holds something else than one bare token", t)
	}
	return s, nil
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
