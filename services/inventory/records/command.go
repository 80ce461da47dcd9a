package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	maxLoggedBytes = 16 << 10    // of stderr, per run
	waitDelay      = time.Second // see commandReader.Read
)

// NewCommandReader returns a Reader of what a program prints. The program runs without a shell, with
// the environment of this process and an empty stdin, in its own process group, which is killed
// before Read returns. Its stderr is logged. A program that does not exist is an error.
func NewCommandReader(argv []string, log *slog.Logger) (Reader, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, errors.New("no command")
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	return &commandReader{path: path, args: argv[1:], log: log.With("command", path)}, nil
}

// ParseArgs parses a list of arguments: a JSON array of strings if it starts with a bracket, else
// words separated by white space. Quotes and backslashes outside a JSON array are an error: no shell
// interprets them, so they would not have the intended effect.
func ParseArgs(text string) ([]string, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		var args []*string
		if err := json.Unmarshal([]byte(text), &args); err != nil {
			return nil, fmt.Errorf(`not a JSON array of strings such as ["-o", "json"]: %w`, err)
		}
		parsed := make([]string, len(args))
		for i, a := range args {
			if a == nil {
				return nil, errors.New(`not a JSON array of strings such as ["-o", "json"]: it has a null`)
			}
			parsed[i] = *a
		}
		return parsed, nil
	}
	if strings.ContainsAny(text, `"'\`) {
		return nil, errors.New(
			`quotes and backslashes are not interpreted; write arguments with quotes, backslashes or white space as a JSON array such as ["-o", "json"]`,
		)
	}
	return strings.Fields(text), nil
}

type commandReader struct {
	path string
	args []string // never logged: they may contain a password
	log  *slog.Logger
}

// errTooMuchOutput stops a program with endless output.
var errTooMuchOutput = fmt.Errorf("output exceeds %d MiB", MaxBytes>>20)

// Read runs the program once and returns what it has printed when it exits. It then kills the rest
// of the process group. A process that has left the group may keep the pipes open: Read waits for
// it no longer than waitDelay.
func (c *commandReader) Read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout := &limitedBuffer{limit: MaxBytes, onExcess: func() { cancel(errTooMuchOutput) }}
	stderr := &limitedBuffer{limit: maxLoggedBytes, onExcess: func() {}}
	cmd := exec.CommandContext(ctx, c.path, c.args...) //nolint:gosec // the operator configures the program
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, waitDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = killGroup
	err := cmd.Run()
	if cmd.Process != nil {
		// The group ID cannot be reused while a process is left in the group. Usually none is, and Kill returns ESRCH.
		_ = killGroup()
	}
	if text := stderr.kept.String(); text != "" {
		c.log.Info("command stderr", "text", strings.ToValidUTF8(text, "?"), "truncated", stderr.exceeded)
	}
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return nil, fmt.Errorf("run %s: %w", c.path, cause)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}
	return stdout.kept.Bytes(), nil
}

// limitedBuffer keeps the start of an output, and drops the rest: a full pipe would block the program.
type limitedBuffer struct {
	kept     bytes.Buffer // not embedded: io.Copy would use its ReadFrom
	limit    int
	exceeded bool
	onExcess func()
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := b.limit - b.kept.Len(); len(p) > room {
		b.exceeded = true
		b.onExcess()
		b.kept.Write(p[:room])
		return len(p), nil
	}
	return b.kept.Write(p)
}
