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
	maxLoggedLineBytes = 1024 // bytes of a line of stderr that are logged
	maxLoggedLines     = 100  // of stderr that are logged, of one run
	waitDelay          = time.Second
)

// NewCommandReader reads what a program prints. It is run without a shell, with our environment and
// an empty stdin, in a process group of its own, of which nothing is left when Read returns. What
// it says on stderr goes to the log. A program that does not exist is an error at once.
func NewCommandReader(argv []string, log *slog.Logger) (Reader, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, errors.New("no command is given")
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	return &commandReader{path: path, args: argv[1:], log: log.With("command", path)}, nil
}

// ParseArgs reads a list of arguments: a JSON array of strings if it begins with a bracket, else
// words between white space. There is no shell to take quotes away, so that a text with quotes or backslashes
// that is no JSON array is an error: it was meant otherwise than it would be taken.
func ParseArgs(text string) ([]string, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		var args []*string
		if err := json.Unmarshal([]byte(text), &args); err != nil {
			return nil, fmt.Errorf(`want a JSON array of strings such as ["-o", "json"]: %w`, err)
		}
		words := make([]string, len(args))
		for i, a := range args {
			if a == nil {
				return nil, errors.New(`want a JSON array of strings such as ["-o", "json"]: null is none`)
			}
			words[i] = *a
		}
		return words, nil
	}
	if strings.ContainsAny(text, `"'\`) {
		return nil, errors.New(`want words between white space; for quotes, backslashes and white space within arguments a JSON array such as ["-o", "json"]`)
	}
	return strings.Fields(text), nil
}

type commandReader struct {
	path string
	args []string // never told: they may hold a password
	log  *slog.Logger
}

// errTooMuchOutput ends a run that prints without end.
var errTooMuchOutput = fmt.Errorf("it printed more than %d MiB", MaxBytes>>20)

// Read runs the program once. What it has printed when it exits is its answer; what it leaves behind
// in its process group is killed, and waited for no longer than waitDelay if it has left the group.
func (c *commandReader) Read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, stdout, errOut := os.Pipe()
	said, stderr, errSaid := os.Pipe()
	defer closeAll(out, said)
	if err := errors.Join(errOut, errSaid); err != nil {
		closeAll(stdout, stderr)
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}

	cmd := exec.CommandContext(ctx, c.path, c.args...) //nolint:gosec // running what the operator names is its purpose
	// Pipes of our own: with those of exec, Wait would wait for whoever else holds them open.
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Start()
	closeAll(stdout, stderr)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}

	var printed []byte
	var reading sync.WaitGroup
	reading.Go(func() {
		printed, _ = io.ReadAll(io.LimitReader(out, MaxBytes+1)) // what is missing at the end shows: it is JSON
		if len(printed) > MaxBytes {
			cancel(errTooMuchOutput)
		}
	})
	reading.Go(func() { c.logStderr(said) })
	err = cmd.Wait() // until the program itself has exited, or was killed since ctx was done
	// The group's number stays taken while anyone is left in it; often nobody is, which is no error.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	deadline := time.Now().Add(waitDelay)
	_ = out.SetReadDeadline(deadline) // pipes can have one
	_ = said.SetReadDeadline(deadline)
	reading.Wait()

	switch cause := context.Cause(ctx); {
	case cause != nil:
		return nil, fmt.Errorf("run %s: %w", c.path, cause)
	case err != nil:
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}
	return printed, nil
}

// closeAll closes ends of pipes, those of a pipe that could not be made too: nil does no harm.
func closeAll(ends ...*os.File) {
	for _, end := range ends {
		_ = end.Close()
	}
}

// logStderr logs what the program says on stderr, so far as it is short, and reads all of it: who is
// not read stands still.
func (c *commandReader) logStderr(said io.Reader) {
	in := bufio.NewReaderSize(said, maxLoggedLineBytes)
	logged, cut := 0, false
	for whole := true; ; {
		line, more, err := in.ReadLine()
		if err != nil {
			break
		}
		// ReadLine gives a line that is too long in pieces: the first is enough.
		switch begins := whole; {
		case begins && logged < maxLoggedLines:
			c.log.Info("the command says on stderr", "line", strings.ToValidUTF8(string(line), "?"))
			logged++
		default:
			cut = true
		}
		whole = !more
	}
	if cut {
		c.log.Info("the command says more on stderr than is logged", "lines", maxLoggedLines, "bytesOfALine", maxLoggedLineBytes)
	}
}
