package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fuzzWith runs tools/fuzz in a checkout of its own, with a go that fails for one target, and returns the
// targets that were fuzzed.
func fuzzWith(t *testing.T, failing string, args ...string) (fuzzed []string, output string, err error) {
	t.Helper()
	dir, fake := t.TempDir(), t.TempDir()
	script, readErr := os.ReadFile(filepath.Join(root, "tools", "fuzz"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	for path, text := range map[string]string{
		"tools/fuzz":           string(script),
		"services/a/a_test.go": "package a\n\nfunc FuzzOne(f *testing.F) {}\n\nfunc FuzzTwo(f *testing.F) {}\n",
		"lab/b/c/c_test.go":    "package c\n\nfunc FuzzThree(f *testing.F) {}\n\n// func FuzzNone( is only spoken of.\n",
		"gen/d/d.go":           "package d\n\nfunc FuzzNoTest(f int) {}\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(fake, "log")
	text := "#!/bin/sh\necho \"$*\" >>" + log + "\ncase \"$*\" in *" + failing + "*) exit 1 ;; esac\n"
	if err := os.WriteFile(filepath.Join(fake, "go"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "tools/fuzz"), args...)
	cmd.Env = append(os.Environ(), "PATH="+fake+":"+os.Getenv("PATH"), "FUZZTIME=3s")
	out, err := cmd.CombinedOutput()
	if called, readErr := os.ReadFile(log); readErr == nil {
		fuzzed = strings.Split(strings.TrimSpace(string(called)), "\n")
	}
	return fuzzed, string(out), err
}

func TestMakeFuzzRunsEachTargetAndFailsIfOneDoes(t *testing.T) {
	fuzzed, output, err := fuzzWith(t, "nothing")
	if err != nil || len(fuzzed) != 3 {
		t.Fatalf("%v: fuzzed %q\n%s", err, fuzzed, output)
	}
	for i, want := range []string{"FuzzThree$ -fuzztime 3s ./lab/b/c", "FuzzOne$ -fuzztime 3s ./services/a", "FuzzTwo$ -fuzztime 3s ./services/a"} {
		if !strings.HasSuffix(fuzzed[i], want) {
			t.Errorf("call %d is %q, want %q at its end", i+1, fuzzed[i], want)
		}
	}
	if fuzzed, output, err = fuzzWith(
		t,
		"FuzzOne",
	); err == nil || len(fuzzed) != 3 ||
		!strings.Contains(output, "FAILED: services/a FuzzOne") {
		t.Errorf("a failing target: %v, fuzzed %q\n%s", err, fuzzed, output)
	}
	if fuzzed, output, err = fuzzWith(t, "nothing", "lab/", "Two"); err != nil || len(fuzzed) != 2 {
		t.Errorf("two patterns: %v, fuzzed %q\n%s", err, fuzzed, output)
	}
	if fuzzed, output, err = fuzzWith(t, "nothing", "NoSuchTarget"); err == nil || len(fuzzed) != 0 {
		t.Errorf("no target: %v, fuzzed %q\n%s", err, fuzzed, output)
	}
}
