package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlyWhatMainHasAndNightlyPassedIsReleased runs tools/release/check in a repository of its own, with a stand-in for gh.
func TestOnlyWhatMainHasAndNightlyPassedIsReleased(t *testing.T) {
	program, err := filepath.Abs(filepath.Join(root, "tools/release/check"))
	if err != nil {
		t.Fatal(err)
	}
	const main = `git init -q -b main . && git config user.name t && git config user.email t@localhost
mkdir services && echo replace >services/go.mod && echo a >a && git add . && git commit -q -m main
git update-ref refs/remotes/origin/main HEAD && git checkout -q --detach
`
	for name, c := range map[string]struct{ commits, passed, want string }{
		"as documented":       {"echo require >services/go.mod && git commit -q -a -m release", "1", ""},
		"Nightly did not run": {"echo require >services/go.mod && git commit -q -a -m release", "0", "Nightly has not passed for "},
		"it changes more":     {"echo b >a && echo require >services/go.mod && git commit -q -a -m release", "1", "the tag also changes a\n"},
		"it is not on main":   {"echo b >a && git commit -q -a -m other && echo require >services/go.mod && git commit -q -a -m release", "1", "is not on main"},
		"it is main's first":  {":", "1", "has no commit before it"},
	} {
		t.Run(name, func(t *testing.T) {
			repository, bin := t.TempDir(), t.TempDir()
			gh := "#!/bin/sh\ncase \"$*\" in *\"--branch main --commit $(git rev-parse HEAD^) --status success\"*) echo " + c.passed + ";; esac\n"
			if err := os.WriteFile(filepath.Join(bin, "gh"), []byte(gh), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, script := range []string{main + c.commits, program} {
				cmd := exec.CommandContext(t.Context(), "bash", "-euc", script)
				cmd.Dir, cmd.Env = repository, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				checks := script == program
				if (err != nil) != (checks && c.want != "") || checks && !strings.Contains(string(out), c.want) {
					t.Errorf("%v\n%s", err, out)
				}
			}
		})
	}
}
