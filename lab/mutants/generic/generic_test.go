package generic

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const half = `package half

// Half of n, more or less.
func Half(n int) (half int) {
	if n < 0 {
		return 0
	}
	half = n / 2
	if n > 3 && n != 6 {
		half++
	}
	return half
}
`

const tests = `package half

import "testing"

func TestHalf(t *testing.T) {
	if Half(3) != 1 || Half(4) != 3 || Half(6) != 3 {
		t.Fail()
	}
}
`

// The tests know nothing of numbers below zero; and 0 itself may as well be one of them,
// since its half is none either.
func TestOnlyWhatTheTestsDoNotNoticeSurvives(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module half\n\ngo 1.26\n", "half.go": half, "half_test.go": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	survivors, err := Run(t.Context(), Config{Root: dir, Package: ".", Tests: []string{"."}, AtOnce: 2, Tell: func(string, ...any) {}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range survivors {
		got = append(got, s.What)
	}
	want := []string{"never: n < 0", "< by its neighbour: n < 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("survivors (-want +got):\n%s", diff)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "half.go")); err != nil || string(text) != half {
		t.Errorf("the source was touched: %v", err)
	}
}

func TestConstantsAndTextsStayAsTheyAre(t *testing.T) {
	dir := t.TempDir()
	text := "package p\n\nimport \"time\"\n\nconst most = 2 + 3\n\nfunc name(s string) string { return \"a\" + s + s[1:] }\n\nvar every = 3 * time.Second\n"
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sources, changes, err := Sleeping(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) != 1 || !strings.HasPrefix(changes[0].What, "return at once") {
		t.Errorf("changes: %v", changes)
	}
	if got := sources[filepath.Join(dir, "p.go")]; !strings.Contains(got, "const most = 2 + 3") {
		t.Errorf("a constant is altered:\n%s", got)
	}
}
