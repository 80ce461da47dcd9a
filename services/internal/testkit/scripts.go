package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// RunScripts runs each script of testdata/histories: commands with their complete output, which people read and write
// without Go. play carries out a command and returns its output, if it has any. The form is that of etcd-io/raft's testdata:
// a command is a line, its output follows a line of four dashes and ends with an empty line, and a line that starts with # is
// a comment.
func RunScripts(t *testing.T, newPlay func(t *testing.T) (play func(command string) string)) {
	files, err := filepath.Glob("testdata/histories/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(string(content), newPlay(t))
			if *Update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(content), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("go test -update writes (-script +output):\n%s", diff)
			}
		})
	}
}

// runScript returns the script with the output of its commands.
func runScript(script string, play func(command string) string) string {
	var out strings.Builder
	inOutput, ended := false, true
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		switch line {
		case "":
			inOutput, ended = false, true
		case "----":
			inOutput = true
		}
		if inOutput {
			continue
		}
		if !ended { // a new command in the middle of what was written before its output was known
			fmt.Fprintln(&out)
			ended = true
		}
		fmt.Fprintln(&out, line)
		if line == "" || line[0] == '#' {
			continue
		}
		if output := play(line); output != "" {
			fmt.Fprintf(&out, "----\n%s", output)
			ended = false
		}
	}
	return out.String()
}
