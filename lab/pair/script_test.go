package pair

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScriptStartsTheComponentAsStartDoes(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$1\"\npwd\nenv\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := newComponent(
		dir,
		program,
		netip.MustParseAddr("10.0.0.22"),
		"writer's",
		map[string]string{"ZONE_MAP": "a'b $HOME \"c\"", "CLASS": ""},
	)
	if err != nil {
		t.Fatal(err)
	}
	script, err := h.StartScript()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", script)
	cmd.Env = append(os.Environ(), "IONOS_TOKEN=not theirs")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	env := slices.DeleteFunc(lines[2:], func(s string) bool {
		return strings.HasPrefix(s, "PWD=") || strings.HasPrefix(s, "_=") || strings.HasPrefix(s, "SHLVL=") ||
			strings.HasPrefix(s, "OLDPWD=")
	})
	slices.Sort(env)
	if diff := cmp.Diff(h.Env(), env); diff != "" || lines[0] != "serve" || lines[1] != h.Dir() {
		t.Errorf("%s in %s (-want +got):\n%s", lines[0], lines[1], diff)
	}
}
