package mutants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

func TestEveryMutantStillFitsTheSources(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(all); n < 50 {
		t.Errorf("there are only %d mutants", n)
	}
	seen := map[string]bool{}
	for _, m := range all {
		if seen[m.Name] {
			t.Errorf("two mutants are named %s", m.Name)
		}
		seen[m.Name] = true
		if _, err := m.Text(root); err != nil {
			t.Error(err)
		}
		if len(m.Edits) == 0 || len(m.Suites) == 0 || !strings.HasSuffix(m.Harm, ".") {
			t.Errorf("mutant %s wants an edit, a suite and a sentence of what it does", m.Name)
		}
		for _, suite := range m.Suites {
			if tests, _ := filepath.Glob(filepath.Join(root, suite, "*_test.go")); len(tests) == 0 {
				t.Errorf("mutant %s must be caught by %s, which has no test", m.Name, suite)
			}
		}
	}
}

func TestATextThatIsNotThereOnceIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("one two two"), 0o600); err != nil {
		t.Fatal(err)
	}
	for before, want := range map[string]string{"one": "ein two two", "two": "", "three": ""} {
		got, err := Mutant{Name: "m", File: "a.go", Edits: []Edit{{before, "ein"}}}.Text(dir)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q replaced: got %q, %v", before, got, err)
		}
	}
}

func TestTheCulpritIsTheFirstTestThatFailed(t *testing.T) {
	for name, of := range map[string]struct{ out, want string }{
		"a test":    {"=== x\n--- FAIL: TestOne (0.00s)\n    --- FAIL: TestOne/sub\n--- FAIL: TestTwo (0.1s)\nFAIL\n", "TestOne"},
		"a subtest": {"    --- FAIL: TestOne/sub (0.0s)\n", "TestOne"},
		"a timeout": {"panic: test timed out after 3m0s\n\trunning tests:\n\t\tTestThree/sub (3m0s)\n", "TestThree"},
		"a crash":   {"fatal error: all goroutines are asleep\n\n", "(fatal error: all goroutines are asleep)"},
	} {
		if got := culprit(of.out); got != of.want {
			t.Errorf("%s: got %q, want %q", name, got, of.want)
		}
	}
}
