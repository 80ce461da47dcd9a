package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var someTime = regexp.MustCompile(`\b([0-9.]+(h|m|s|ms))+\b`)

// InOrder reports whether a text contains all parts one after the other, with any line breaks, and T for each time.
func InOrder(text string, parts ...string) bool {
	text = strings.Join(strings.Fields(someTime.ReplaceAllString(text, "T")), " ")
	for _, part := range parts {
		_, after, ok := strings.Cut(text, part)
		if !ok {
			return false
		}
		text = after
	}
	return true
}

// Run runs a command of a component and returns its exit code and output.
func Run(t *testing.T, program string, env []string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(Bin, program), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE")}, env...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	for _, bad := range []string{"DATA RACE", "panic"} {
		if strings.Contains(string(text), bad) {
			t.Errorf("%s: %s", bad, text)
		}
	}
	return cmd.ProcessState.ExitCode(), string(text)
}
