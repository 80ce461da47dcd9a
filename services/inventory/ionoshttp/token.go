package ionoshttp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
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
