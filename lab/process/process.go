// Package process runs other programs for the lab. It promises that a child dies with
// us, however we die, and that an error about a child shows the end of its output; it
// refuses to mix that output into our own: it goes to a file.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Spec describes a program to start.
type Spec struct {
	Name string // for messages
	Path string
	Args []string // without the program's own name
	Env  []string // nil: ours
	Dir  string   // empty: ours
	Log  string   // file that its output is appended to

	// Start starts it where it is to run, in namespaces of its own for one. The thread that does
	// must live on: the program dies with it. Nil: here.
	Start func(*exec.Cmd) error
}

// Process is a started program. Its methods may be called from any goroutine.
type Process struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{}
	err       error // set when done is closed
}

// Start starts the program. Wait for it, or Stop it.
func Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	defer log.Close() //nolint:errcheck // the child has its own copy
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = spec.Env, spec.Dir, log, log
	cmd.SysProcAttr = attributes()
	if spec.Start == nil {
		spec.Start = startOnLastingThread
	}
	if err := spec.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	p := &Process{name: spec.Name, log: spec.Log, cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the child; Stop and Done wait for it
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the program has ended and returns nil if that was with exit code 0,
// else an error with the end of its output.
func (p *Process) Wait() error {
	<-p.done
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w%s", p.name, p.err, p.Tail())
}

// ExitCode waits until the program has ended and returns its exit code, or 128 and the number
// of the signal that it died of, as shells do.
func (p *Process) ExitCode() int {
	<-p.done
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends a signal; to a program that has ended already it is an error.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Stop ends the program: SIGTERM first, unless grace is zero, and SIGKILL after grace.
// It returns when the program is gone, and how it ended then: nil for exit code 0 and
// for a death by the very signal that Stop sent last.
func (p *Process) Stop(grace time.Duration) error {
	sent := syscall.SIGKILL
	if grace > 0 {
		sent = syscall.SIGTERM
		_ = p.cmd.Process.Signal(sent)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
		case <-timer.C:
			sent = syscall.SIGKILL
		}
	}
	if sent == syscall.SIGKILL {
		_ = p.cmd.Process.Kill()
	}
	err := p.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == sent {
		return nil
	}
	return err
}

// Log returns the path of the file with the program's output.
func (p *Process) Log() string { return p.log }

// Tail returns the last lines of the output, indented and preceded by a line that says
// where the rest is, ready to be appended to a message.
func (p *Process) Tail() string {
	const keep = 20
	lines := strings.Split(strings.TrimSpace(lastBytes(p.log, 16<<10)), "\n")
	if len(lines) > keep {
		lines = lines[len(lines)-keep:]
	}
	return "\n" + filepath.Base(p.log) + " ends with (all of it is in " + p.log + "):\n  " + strings.Join(lines, "\n  ")
}

func lastBytes(path string, n int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close() //nolint:errcheck // it is only read
	if info, err := file.Stat(); err == nil && info.Size() > n {
		if _, err := file.Seek(-n, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	raw, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

type startRequest struct {
	cmd   *exec.Cmd
	reply chan error
}

// starter hands commands to the goroutine that starts them all.
var starter = sync.OnceValue(func() chan<- startRequest {
	requests := make(chan startRequest)
	go func() {
		// A parent death signal is sent when the thread dies that made the child, not
		// the process. So all children are made on one thread that is never given back;
		// this goroutine lives as long as the process does, on purpose.
		runtime.LockOSThread()
		for r := range requests {
			r.reply <- r.cmd.Start()
		}
	}()
	return requests
})

func startOnLastingThread(cmd *exec.Cmd) error {
	reply := make(chan error)
	starter() <- startRequest{cmd: cmd, reply: reply}
	return <-reply
}
