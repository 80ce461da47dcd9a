package charts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// step is one thing that a page does. A page is a script:
//
//	```sh      a command, run by bash as it is; its variables live until the end of the page
//	```text    what the command before it prints: see matches
//	<!-- lab: something happens -->     an event, which the test causes by name
//	<!-- until -->      the next command is repeated until it prints what is shown
type step struct {
	line    int    // of the page
	event   string // empty: a command
	command string
	output  string // that the page shows; empty: nothing is shown
	until   bool
}

// readPage returns the steps of a page, or of its section with a heading.
func readPage(path, heading string) (steps []step, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	inside, until := heading == "", false
	var block []string // lines of the block that is open
	indent, language := "", ""
	for i, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		fence, isFence := strings.CutPrefix(trimmed, "```")
		switch {
		case block != nil && !isFence:
			block = append(block, strings.TrimPrefix(line, indent))
		case block != nil:
			content := strings.Join(block[1:], "\n") + "\n"
			if block = nil; !inside {
				continue
			}
			switch language {
			case "sh":
				steps, until = append(steps, step{line: i + 1, command: content, until: until}), false
			case "text":
				steps[len(steps)-1].output = content
			}
		case isFence:
			block, language, indent = []string{""}, fence, line[:len(line)-len(strings.TrimLeft(line, " "))]
		case heading != "" && strings.HasPrefix(line, "## "):
			inside = line == "## "+heading
		case inside && trimmed == "<!-- until -->":
			until = true
		case inside && strings.HasPrefix(trimmed, "<!-- lab: "):
			steps = append(steps, step{line: i + 1, event: strings.TrimSuffix(strings.TrimPrefix(trimmed, "<!-- lab: "), " -->")})
		}
	}
	if len(steps) == 0 || block != nil || until {
		return nil, fmt.Errorf("%s, section %q: no command, or one that does not end", path, heading)
	}
	return steps, nil
}

// variable are the things that differ between runs, with what replaces them before a comparison.
var variable = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "<uuid>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d(([T ])\d\d:\d\d(:\d\d(\.\d+)?)?)?Z?\b`), "<date>"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?Z?\b`), "<time>"},
	{regexp.MustCompile(`\b((\d+(\.\d+)?)(ms|µs|d|h|m|s))+\b`), "<duration>"},
	{regexp.MustCompile(`\b(slicefeed-(?:inventory|writer))-[a-z0-9]{8,10}-[a-z0-9]{5}\b`), "$1-<pod>"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// addresses is a list of addresses in any order.
var addresses = regexp.MustCompile(`\b\d+(\.\d+){3}(,\d+(\.\d+){3})+\b`)

// normalize returns the lines of a text that are not empty, without what differs between runs.
func normalize(text string) (lines []string) {
	for line := range strings.Lines(text) {
		line = addresses.ReplaceAllStringFunc(line, func(list string) string {
			return strings.Join(slices.Sorted(strings.SplitSeq(list, ",")), ",")
		})
		for _, v := range variable {
			line = v.pattern.ReplaceAllString(line, v.replacement)
		}
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// matches compares what a page shows with what was printed, line by line. An ellipsis stands for anything within a line,
// and a line of it for any lines.
func matches(shown, printed string) error {
	rest, gap := normalize(printed), false
	for _, line := range normalize(shown) {
		if line == "…" {
			gap = true
			continue
		}
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$")
		found := slices.IndexFunc(rest, pattern.MatchString)
		if found < 0 || found > 0 && !gap {
			return fmt.Errorf("it does not print, in its place: %s", line)
		}
		rest, gap = rest[found+1:], false
	}
	if len(rest) > 0 && !gap {
		return fmt.Errorf("it prints a line more than the page shows: %s", rest[0])
	}
	return nil
}

func TestOutputsAreCompared(t *testing.T) {
	const shown = "NAME     READY  AGE\nslicefeed-writer-6f8d9c7b5d-x2x7z  1/1  3m12s\n…\nlast: …\n"
	for printed, want := range map[string]bool{
		"NAME READY AGE\nslicefeed-writer-5c6d7b8f9-abcde 1/1 4s\n\nmore\nlast: none\n": true,
		"NAME READY AGE\nslicefeed-writer-5c6d7b8f9-abcde 0/1 4s\nlast: none\n":         false,
		"NAME READY AGE\nodd\nslicefeed-writer-5c6d7b8f9-abcde 1/1 4s\nlast: none\n":    false,
		"NAME READY AGE\nslicefeed-writer-5c6d7b8f9-abcde 1/1 4s\nlast: none\nmore\n":   false,
	} {
		if err := matches(shown, printed); (err == nil) != want {
			t.Errorf("%q: %v", printed, err)
		}
	}
}

// shell is that of a page's reader.
type shell struct {
	dir    string
	bash   *exec.Cmd
	stdin  io.WriteCloser
	status *os.File // the exit code of each command
}

func openShell(dir string, env []string) (*shell, error) {
	status, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	s := &shell{dir: dir, bash: exec.Command("bash", "--noprofile", "--norc"), status: status}
	s.bash.Dir, s.bash.Env, s.bash.ExtraFiles = dir, env, []*os.File{write}
	s.bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.stdin, err = s.bash.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.bash.Start(); err != nil {
		return nil, err
	}
	_, err = io.WriteString(s.stdin, "set -o pipefail -o nounset\n")
	return s, err
}

// run returns what a command printed. Each of its lines must succeed.
func (s *shell) run(ctx context.Context, command string) (string, error) {
	block, out := filepath.Join(s.dir, ".block"), filepath.Join(s.dir, ".out")
	if err := os.WriteFile(block, []byte(command), 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = syscall.Kill(-s.bash.Process.Pid, syscall.SIGKILL) })()
	// The trap leaves the block at the first failure, and not the shell.
	_, err := fmt.Fprintf(s.stdin, "trap 'return $?' ERR; . '%s' >'%s' 2>&1 3>&- </dev/null; code=$?; trap - ERR; echo $code >&3\n", block,
		out)
	if err != nil {
		return "", err
	}
	answer := make([]byte, 16)
	n, err := s.status.Read(answer)
	printed, _ := os.ReadFile(out)
	if err != nil {
		return string(printed), errors.Join(errors.New("it does not end, or it ends the shell"), err, context.Cause(ctx))
	}
	if code, err := strconv.Atoi(strings.TrimSpace(string(answer[:n]))); err != nil || code != 0 {
		return string(printed), errors.Join(fmt.Errorf("it ends with exit code %d", code), err)
	}
	return string(printed), nil
}

// perStep is how long a command may be repeated: a removed label counts only after a minute.
const perStep = 90 * time.Second

func (s *shell) do(ctx context.Context, step step) error {
	deadline := time.Now().Add(perStep)
	for {
		printed, err := s.run(ctx, step.command)
		if err == nil && step.output != "" {
			err = matches(step.output, printed)
		}
		if err == nil {
			return nil
		}
		if !step.until || time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("line %d: %w\n%s\nprinted:\n%s", step.line, err, step.command, printed)
		}
		select { // a person checks again after a while, too
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (s *shell) close() error {
	_ = s.stdin.Close()
	_ = syscall.Kill(-s.bash.Process.Pid, syscall.SIGKILL)
	_ = s.bash.Wait() // it was killed
	return s.status.Close()
}
