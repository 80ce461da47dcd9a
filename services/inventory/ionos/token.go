package ionos

import (
	"errors"
	"fmt"
	"io"
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

// check returns the errors that can be known before any request. A missing file is not one, because
// Secrets are often mounted after the start.
func (t tokenSource) check() error {
	switch {
	case t.file == "" && t.fixed == "":
		return errors.New("no token; set IONOS_TOKEN_FILE or IONOS_TOKEN")
	case t.file != "" && t.fixed != "":
		return errors.New("IONOS_TOKEN and IONOS_TOKEN_FILE are both set; unset one")
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
			return "", t.readError(err)
		}
		defer f.Close() //nolint:errcheck // only read
		b, err := io.ReadAll(io.LimitReader(f, 64<<10))
		if err != nil {
			return "", t.readError(err)
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

// readError avoids the text "token:", because log processors may redact what follows it.
func (t tokenSource) readError(err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err
	}
	return fmt.Errorf("read %s: %w", t, err)
}
