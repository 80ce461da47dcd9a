package runbooks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Session is the shell of a page's reader: variables and background jobs live until Close.
type Session struct {
	dir    string
	shell  *exec.Cmd
	stdin  io.WriteCloser
	told   *os.File       // where the shell says how a command ended
	status *bufio.Scanner // of it
	mutex  sync.Mutex
	blocks int
}

// perCommand is more than any command of a page needs, on a machine that does much else.
const perCommand = 3 * time.Minute

// Open starts a shell in a directory, with this environment and nothing else.
func Open(dir string, env []string) (*Session, error) {
	status, done, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer done.Close() //nolint:errcheck // the shell's end of it
	s := &Session{dir: dir, shell: exec.Command("bash", "--noprofile", "--norc"), told: status, status: bufio.NewScanner(status)}
	s.shell.Dir, s.shell.Env, s.shell.ExtraFiles = dir, env, []*os.File{done}
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.stdin, err = s.shell.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.shell.Start(); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	_, err = io.WriteString(s.stdin, "set -o pipefail -o nounset\n")
	return s, err
}

// Run runs a command and returns what it printed, errors included, and its exit code. Of
// several lines each has to succeed, but the last one.
func (s *Session) Run(ctx context.Context, command string) (printed string, code int, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.blocks++
	block := filepath.Join(s.dir, ".block-"+strconv.Itoa(s.blocks))
	if err := os.WriteFile(block, []byte(command), 0o600); err != nil {
		return "", 0, err
	}
	defer os.Remove(block) //nolint:errcheck // the directory goes as well
	out := block + ".out"
	defer os.Remove(out) //nolint:errcheck // the directory goes as well
	// The trap leaves the sourced block at the first failure, and not the shell.
	_, err = fmt.Fprintf(
		s.stdin,
		"trap 'return $?' ERR; . '%s' >'%s' 2>&1 3>&- </dev/null; trap_code=$?; trap - ERR; echo $trap_code >&3\n",
		block,
		out,
	)
	if err != nil {
		return "", 0, fmt.Errorf("the shell has ended: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, perCommand)
	defer cancel()
	hung := context.AfterFunc(ctx, func() { _ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL) })
	defer hung()
	ended := s.status.Scan()
	raw, errRead := os.ReadFile(out)
	printed = string(raw)
	switch {
	case ctx.Err() != nil:
		return printed, 0, fmt.Errorf("it does not end: %w", context.Cause(ctx))
	case !ended:
		return printed, 0, errors.New("it has ended the shell")
	case errRead != nil:
		return "", 0, errRead
	}
	code, err = strconv.Atoi(strings.TrimSpace(s.status.Text()))
	return printed, code, err
}

// Close ends the shell and all that it has started.
func (s *Session) Close() error {
	_ = s.stdin.Close()
	_ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL)
	_ = s.shell.Wait() // it was killed
	return s.told.Close()
}

// retry is how long a command that is repeated may take to print what its page shows: a removed label
// counts only after a minute.
const retry = 90 * time.Second

// Do runs a step that is a command. The error shows what it printed.
func (s *Session) Do(ctx context.Context, step Step) error {
	begun := time.Now()
	for {
		printed, code, err := s.Run(ctx, step.Command)
		if err == nil && code != step.Exit {
			err = fmt.Errorf("it ends with code %d, want %d", code, step.Exit)
		}
		if err == nil && step.Output != "" {
			err = Matches(step.Output, printed)
		}
		if err == nil {
			return nil
		}
		if !step.Until || time.Since(begun) > retry || ctx.Err() != nil {
			return fmt.Errorf("line %d: %w\n%s\nprinted:\n%s", step.Line, err, step.Command, printed)
		}
		select { // a person looks again after a while, too
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
