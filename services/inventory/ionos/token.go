package ionos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// tokenSource is a file that is read each time, or a fixed token. Its errors never contain the token.
type tokenSource struct {
	file, fixed string
}

// String returns where the token comes from.
func (t tokenSource) String() string {
	if t.file != "" {
		return "file " + t.file + " (IONOS_TOKEN_FILE)"
	}
	return "variable IONOS_TOKEN"
}

// advice explains how to replace the token.
func (t tokenSource) advice() string {
	if t.file != "" {
		return "create a new token and write it to " + t.String() + ", which is read for each request"
	}
	return "create a new token, set " + t.String() + " and restart; a token in IONOS_TOKEN_FILE needs no restart"
}

// read returns the current token.
func (t tokenSource) read() (string, error) {
	s := t.fixed
	if t.file != "" {
		b, err := os.ReadFile(t.file)
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
