package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newShellReader returns a reader that runs a script. $0 in it is the path of a file to write.
func newShellReader(t *testing.T, script string, log *slog.Logger) (r Reader, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "file")
	r, err := NewCommandReader([]string{"sh", "-c", script, file}, log)
	must(t, err)
	return r, file
}

var discardLogger = slog.New(slog.DiscardHandler)

func TestCommandBadInput(t *testing.T) {
	var dir string
	script := func(t *testing.T, text string) { replaceFile(t, filepath.Join(dir, "script"), text) }
	runScript := func(text string) func(*testing.T, *testPipeline) error {
		return func(t *testing.T, f *testPipeline) error {
			script(t, text)
			return f.verify(t.Context())
		}
	}
	rows := append([]badInput{
		{"it exits with an error, whatever it printed", "", degradedSet, "exit status 3"},
		{"it is killed by a signal", "", degradedSet, "signal: terminated"},
		{"it takes longer than 30 s", "", degradedSet, "context deadline exceeded"},
		{"its output is endless", "", degradedSet, "output exceeds 16 MiB"},
		{"it prints its records on stderr", "", degradedSet, "empty; want"},
		{"it exits and leaves a process behind that holds stdout open", "", syncedSet, ""},
		{"the program was removed", "", degradedSet, "no such file or directory"},
	}, badTexts...)
	runBadInput(t, rows, func(t *testing.T) Reader {
		dir = t.TempDir()
		shell, err := exec.LookPath("sh")
		must(t, err)
		must(t, os.Symlink(shell, filepath.Join(dir, "program")))
		r, err := NewCommandReader([]string{filepath.Join(dir, "program"), filepath.Join(dir, "script")}, discardLogger)
		must(t, err)
		return r
	}, func(t *testing.T, _, text string) {
		writeFile(t, filepath.Join(dir, "text"), text)
		script(t, "cat "+dir+"/text")
	}, map[string]func(*testing.T, *testPipeline) error{
		"it exits with an error, whatever it printed": runScript("cat ${0%script}text; exit 3"),
		"it is killed by a signal":                    runScript("kill $$"),
		"it takes longer than 30 s": func(t *testing.T, f *testPipeline) error {
			script(t, "cat ${0%script}text; sleep 1000")
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // instead of readTimeout
			defer cancel()
			return f.verify(ctx)
		},
		"its output is endless":                                       runScript("yes"),
		"it prints its records on stderr":                             runScript("cat ${0%script}text >&2"),
		"it exits and leaves a process behind that holds stdout open": runScript("cat ${0%script}text; sleep 1000 &"),
		"the program was removed": func(t *testing.T, f *testPipeline) error {
			program := filepath.Join(dir, "program")
			must(t, os.Rename(program, program+".gone"))
			defer func() { must(t, os.Rename(program+".gone", program)) }()
			return f.verify(t.Context())
		},
	})
	missing := "the program does not exist at the start"
	t.Run(missing, func(t *testing.T) {
		for _, argv := range [][]string{{"slicefeed-no-such-program"}, {t.TempDir()}, {""}, nil} {
			if _, err := NewCommandReader(argv, discardLogger); err == nil {
				t.Errorf("%q was accepted", argv)
			}
		}
	})
}

func TestCommandLeavesNoProcess(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		want         string // what Read returns; empty: an error
	}{
		{"when the program waits for its child", "sleep 1000 & echo $! >$0.new; mv $0.new $0; wait", ""},
		{"when it ignores every signal that can be ignored", "trap '' TERM INT HUP; sleep 1000 & echo $! >$0.new; mv $0.new $0; while :; do wait; done", ""},
		{"when the program exits before its child", "echo '[]'; sleep 1000 & echo $! >$0.new; mv $0.new $0", "[]\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, file := newShellReader(t, tc.script, discardLogger)
			pid := make(chan int, 1)
			go func() {
				n := awaitPID(file)
				if tc.want == "" {
					cancel()
				}
				pid <- n
			}()
			startedAt := time.Now()
			data, err := r.Read(ctx)
			if string(data) != tc.want || (err == nil) != (tc.want != "") || time.Since(startedAt) > 30*time.Second {
				t.Errorf("after %s: %q, %v", time.Since(startedAt), data, err)
			}
			awaitGone(t, <-pid)
		})
	}
}

func TestCommandDoesNotWaitForDetachedProcess(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip(err)
	}
	r, file := newShellReader(
		t,
		"echo '[]'; setsid sleep 1000 & echo $! >$0.new; mv $0.new $0; while ! cut -d ' ' -f 6 /proc/$!/stat | grep -q $!; do :; done",
		discardLogger,
	)
	startedAt := time.Now()
	data, err := r.Read(t.Context())
	pid := awaitPID(file)
	if kill := syscall.Kill(pid, syscall.SIGKILL); kill != nil {
		t.Errorf("the process has not left the group: %v", kill)
	}
	if string(data) != "[]\n" || err != nil || time.Since(startedAt) > 30*time.Second {
		t.Errorf("after %s: %q, %v", time.Since(startedAt), data, err)
	}
}

// awaitPID waits until a script has written a process ID and returns it, or 0 after a timeout.
func awaitPID(file string) int {
	for range 6000 {
		text, _ := os.ReadFile(file)
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil { // the file is there before its content
			return n
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0
}

// awaitGone waits until a process has exited; a zombie counts as exited.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("no process was started: %d", pid)
	}
	for range 6000 {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d still runs", pid)
}

func TestCommandArgumentsAndEnvironment(t *testing.T) {
	t.Setenv("IONOS_TOKEN", "for the script")
	r, err := NewCommandReader(
		[]string{"sh", "-c", `printf '%s|' "$@" "$IONOS_TOKEN"; cat`, "sh", "$HOME; *", "", "two words"},
		discardLogger,
	)
	must(t, err)
	data, err := r.Read(t.Context())
	if want := "$HOME; *||two words|for the script|"; string(data) != want || err != nil {
		t.Errorf("got %q, %v; want %q", data, err, want)
	}
}

func TestCommandErrorHidesArgumentsAndStderr(t *testing.T) {
	r, err := NewCommandReader([]string{"sh", "-c", "echo s3cr3t >&2; exit 1", "--password=s3cr3t"}, discardLogger)
	must(t, err)
	if _, err = r.Read(t.Context()); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("got %v", err)
	}
}

func TestLogsBoundedStderr(t *testing.T) {
	var log bytes.Buffer
	r, _ := newShellReader(
		t,
		`printf 'first\033[2J\n\377second\n' >&2; printf '%050000d\n' 0 >&2; printf last >&2; echo '[]'`,
		slog.New(slog.NewJSONHandler(&log, nil)),
	)
	data, err := r.Read(t.Context())
	if string(data) != "[]\n" || err != nil {
		t.Fatalf("%q, %v", data, err)
	}
	var line struct {
		Text      string
		Truncated bool
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil || len(line.Text) != maxLoggedBytes || !line.Truncated {
		t.Fatalf("%v, %d bytes, truncated %t", err, len(line.Text), line.Truncated)
	}
	if want := "first\x1b[2J\n?second\n000"; !strings.HasPrefix(line.Text, want) {
		t.Errorf("got %.40q, want %q", line.Text, want)
	}
}

func TestParseArgs(t *testing.T) {
	for _, tc := range []struct {
		text    string
		want    []string
		wantErr bool
	}{
		{"", nil, false},
		{"  ", nil, false},
		{"--output json", []string{"--output", "json"}, false},
		{" -o\tjson,yaml \n", []string{"-o", "json,yaml"}, false},
		{`[]`, []string{}, false},
		{` ["--filter", "a b, c", "", "it's \"quoted\""] `, []string{"--filter", "a b, c", "", `it's "quoted"`}, false},
		{`["a", 1]`, nil, true},
		{`["a", null]`, nil, true},
		{`["a"] b`, nil, true},
		{`["a"`, nil, true},
		{`[a-z]*`, nil, true},
		{`--filter "a b"`, nil, true},
		{`--filter 'a'`, nil, true},
		{`a\ b`, nil, true},
	} {
		got, err := ParseArgs(tc.text)
		if d := cmp.Diff(
			len(tc.want),
			len(got),
		) + cmp.Diff(
			strings.Join(tc.want, "|"),
			strings.Join(got, "|"),
		); d != "" ||
			(err != nil) != tc.wantErr {
			t.Errorf("%q: %q, %v", tc.text, got, err)
		}
	}
}
