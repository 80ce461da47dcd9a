// Package session is the note that a demo leaves behind while it is left up, so that
// other commands find it. It promises never to lead to a process that is not the demo's
// any more; it refuses to keep more than one.
package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slicefeed/slicefeed/lab/pki"
)

// State is what others need to know of a demo that is up.
type State struct {
	PID     int               `json:"pid"`     // of the process in the namespaces; filled in by Save
	Started string            `json:"started"` // tells the process from a later one of the same PID; filled in by Save
	Path    []string          `json:"path"`    // directories to look for programs in first
	Env     map[string]string `json:"env"`     // e.g. KUBECONFIG
}

// ErrNone says that no demo is up.
var ErrNone = errors.New("no demo is up; start one with: make demo KEEP=1")

const fileName = "demo.json"

// Save writes the note into the cache directory, for the calling process.
func Save(cacheDir string, state State) error {
	state.PID = os.Getpid()
	started, err := startTime(state.PID)
	if err != nil {
		return fmt.Errorf("save the demo's state: %w", err)
	}
	state.Started = started
	raw, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return fmt.Errorf("save the demo's state: %w", err)
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return fmt.Errorf("save the demo's state: %w", err)
	}
	return pki.WriteFile(filepath.Join(cacheDir, fileName), raw)
}

// Load returns the note of the demo that is up, or ErrNone.
func Load(cacheDir string) (State, error) {
	var state State
	raw, err := os.ReadFile(filepath.Join(cacheDir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, ErrNone
	}
	if err == nil {
		err = json.Unmarshal(raw, &state)
	}
	if err != nil {
		return State{}, fmt.Errorf("read the demo's state: %w", err)
	}
	if started, err := startTime(state.PID); err != nil || started != state.Started {
		return State{}, ErrNone // it was killed, and could not take its note away
	}
	return state, nil
}

// Remove takes the calling process's note away; another's stays.
func Remove(cacheDir string) error {
	state, err := Load(cacheDir)
	if errors.Is(err, ErrNone) || err == nil && state.PID != os.Getpid() {
		return nil
	}
	if err := os.Remove(filepath.Join(cacheDir, fileName)); err != nil {
		return fmt.Errorf("remove the demo's state: %w", err)
	}
	return nil
}

// Environ returns base with the state's settings, and its directories in front of PATH.
func (s State) Environ(base []string) []string {
	env := make([]string, 0, len(base)+len(s.Env)+1)
	path := append([]string(nil), s.Path...)
	for _, setting := range base {
		name, value, _ := strings.Cut(setting, "=")
		if name == "PATH" {
			if value != "" {
				path = append(path, value)
			}
			continue
		}
		if _, ours := s.Env[name]; !ours {
			env = append(env, setting)
		}
	}
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	return append(env, "PATH="+strings.Join(path, string(os.PathListSeparator)))
}

// startTime reads when a process started, in the kernel's ticks since boot.
func startTime(pid int) (string, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The second field is the program's name in brackets and may hold anything, so count
	// from the last bracket: the start time is the 20th from there.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields[19], nil
}
