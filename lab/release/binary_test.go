package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compile compiles a component in a copy of the checkout, and returns the path of the program.
func compile(t *testing.T, half string) string {
	t.Helper()
	copied, out := t.TempDir(), t.TempDir()
	for _, tree := range []string{"gen", "services", "deploy/images"} {
		if err := os.CopyFS(filepath.Join(copied, tree), os.DirFS(filepath.Join(root, tree))); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(copied, "deploy/images/compile"), out, half)
	cmd.Env = append(os.Environ(), "GOWORK=off", "VERSION=v1.2.3", "COMMIT=0123abc")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return filepath.Join(out, "slicefeed-"+half)
}

func digest(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// One component is enough: both are compiled by the same lines. Go's cache is shared, because Go tests that its compiler is
// deterministic.
func TestTheSameSourceInAnotherDirectoryGivesTheSameBytes(t *testing.T) {
	if os.Getenv("SLICEFEED_VERIFY") == "" {
		t.Skip("part of make verify")
	}
	first, second := compile(t, "writer"), compile(t, "writer")
	if a, b := digest(t, first), digest(t, second); a != b {
		t.Errorf("%s and %s differ", a, b)
	}
	raw, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := filepath.Abs(root); err != nil || bytes.Contains(raw, []byte(dir+"/")) {
		t.Errorf("the binary knows the directory %s (%v)", dir, err)
	}
	out, err := exec.CommandContext(t.Context(), first, "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "slicefeed-writer v1.2.3\ncommit 0123abc\ngo1.") {
		t.Errorf("version prints %q: %v", out, err)
	}
	// What needs nothing of a root file system: neither a loader nor a libc.
	if bytes.Contains(raw, []byte("ld-linux")) {
		t.Error("the binary asks for a dynamic loader")
	}
}
