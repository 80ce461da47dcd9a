package ionos

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
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

// advice says how to replace it.
func (t tokenSource) advice() string {
	if t.file != "" {
		return "make a new token and write it into " + t.String() + ", which is read again at each request"
	}
	return "make a new token, set " + t.String() + " to it and start again; a token in IONOS_TOKEN_FILE is replaced without a restart"
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
			return "", t.readError(err)
		}
		defer f.Close() //nolint:errcheck // it is only read
		b, err := io.ReadAll(io.LimitReader(f, 64<<10))
		if err != nil {
			return "", t.readError(err)
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

// readError words an error without "token:", after which a log may remove what looks secret.
func (t tokenSource) readError(err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err
	}
	return fmt.Errorf("read %s: %w", t, err)
}
