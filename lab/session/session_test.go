package session

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatWasSavedIsFoundUntilItIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not there yet")
	if _, err := Load(dir); !errors.Is(err, ErrNone) {
		t.Errorf("before: %v", err)
	}
	if err := Save(dir, State{Path: []string{"/a"}, Env: map[string]string{"KUBECONFIG": "/k"}}); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := State{PID: os.Getpid(), Started: got.Started, Path: []string{"/a"}, Env: map[string]string{"KUBECONFIG": "/k"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); !errors.Is(err, ErrNone) {
		t.Errorf("after: %v", err)
	}
}

func TestADemoThatDiedIsNotUp(t *testing.T) {
	for name, forge := range map[string]func(*State){
		"its process is gone":           func(s *State) { s.PID = deadPID(t) },
		"its process ID has a new user": func(s *State) { s.Started = "1" },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := Save(dir, State{}); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, fileName)
			state, err := Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			before := state
			forge(&state)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(raw), `"started": "`+before.Started, `"started": "`+state.Started)
			text = strings.ReplaceAll(text, `"pid": `+strconv.Itoa(before.PID), `"pid": `+strconv.Itoa(state.PID))
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(dir); !errors.Is(err, ErrNone) {
				t.Errorf("got %v, want none", err)
			}
		})
	}
}

func deadPID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestTheEnvironmentIsTheDemosOnTopOfOurs(t *testing.T) {
	state := State{Path: []string{"/cache", "/bin2"}, Env: map[string]string{"KUBECONFIG": "/demo"}}
	got := state.Environ([]string{"HOME=/root", "PATH=/usr/bin:/bin", "KUBECONFIG=/mine"})
	slices.Sort(got)
	want := []string{"HOME=/root", "KUBECONFIG=/demo", "PATH=/cache:/bin2:/usr/bin:/bin"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
