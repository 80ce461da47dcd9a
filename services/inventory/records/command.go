package records

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxLoggedLineBytes = 1024        // per line of stderr
	maxLoggedLines     = 100         // of stderr, per run
	waitDelay          = time.Second // see commandReader.Read
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
		return nil, errors.New(`quotes and backslashes are not interpreted; write arguments with quotes, backslashes or white space as a JSON array such as ["-o", "json"]`)
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
	stdout, stdoutWriter, stdoutErr := os.Pipe()
	stderr, stderrWriter, stderrErr := os.Pipe()
	defer closeAll(stdout, stderr)
	if err := errors.Join(stdoutErr, stderrErr); err != nil {
		closeAll(stdoutWriter, stderrWriter)
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}

	cmd := exec.CommandContext(ctx, c.path, c.args...) //nolint:gosec // the operator configures the program
	// With the pipes of os/exec, Wait would also wait for every other process that holds them open.
	cmd.Stdout, cmd.Stderr = stdoutWriter, stderrWriter
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Start()
	closeAll(stdoutWriter, stderrWriter)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}

	var printed []byte
	var reading sync.WaitGroup
	reading.Go(func() {
		printed, _ = io.ReadAll(io.LimitReader(stdout, MaxBytes+1)) // after an error the JSON is truncated, which parsing detects
		if len(printed) > MaxBytes {
			cancel(errTooMuchOutput)
		}
	})
	reading.Go(func() { c.logStderr(stderr) })
	err = cmd.Wait() // until the program has exited, or was killed because ctx is done
	// The group ID cannot be reused while a process is left in the group. Usually none is, and
	// Kill returns ESRCH.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	deadline := time.Now().Add(waitDelay)
	_ = stdout.SetReadDeadline(deadline) // pipes support deadlines
	_ = stderr.SetReadDeadline(deadline)
	reading.Wait()

	switch cause := context.Cause(ctx); {
	case cause != nil:
		return nil, fmt.Errorf("run %s: %w", c.path, cause)
	case err != nil:
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}
	return printed, nil
}

// closeAll closes ends of pipes; nil is allowed.
func closeAll(ends ...*os.File) {
	for _, end := range ends {
		_ = end.Close()
	}
}

// logStderr logs the start of stderr and reads all of it, because a full pipe would block the
// program.
func (c *commandReader) logStderr(stderr io.Reader) {
	in := bufio.NewReaderSize(stderr, maxLoggedLineBytes)
	logged, truncated := 0, false
	for isLineStart := true; ; {
		line, isPrefix, err := in.ReadLine()
		if err != nil {
			break
		}
		// ReadLine returns a long line in pieces: only the first is logged.
		if isLineStart && logged < maxLoggedLines {
			c.log.Info("command stderr", "line", strings.ToValidUTF8(string(line), "?"))
			logged++
		} else {
			truncated = true
		}
		isLineStart = !isPrefix
	}
	if truncated {
		c.log.Info("command stderr truncated", "maxLines", maxLoggedLines, "maxLineBytes", maxLoggedLineBytes)
	}
}
