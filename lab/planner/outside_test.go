// Package planner tests the writer's planner and applier as others use them: libraries, imported
// from a module of their own.
package planner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// outside makes a module that is in no workspace and has our modules from the checkout, as
// it would have them from a release, and a program of testdata. It returns what runs go there.
func outside(t *testing.T, name string) func(args ...string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte, err error) {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(filepath.Join("testdata", name, "main.go"))
	write("main.go", program, err)
	sums, err := os.ReadFile(filepath.Join(root, "services/go.sum"))
	write("go.sum", sums, err)
	write("go.mod", fmt.Appendf(nil, `module example.org/outside

go 1.26.0

require github.com/slicefeed/slicefeed/services v0.0.0

replace (
	github.com/slicefeed/slicefeed/services => %s
	github.com/slicefeed/slicefeed/gen => %s
)
`, filepath.Join(root, "services"), filepath.Join(root, "gen")), nil)

	return func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		var told strings.Builder
		cmd.Stderr = &told
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, told.String())
		}
		return string(out)
	}
}

func TestAModuleOfOthersRunsThePlanner(t *testing.T) {
	run := outside(t, "outside")
	if got, want := run("run", "."), "create database [192.0.2.10]\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

func TestAModuleOfOthersRunsTheApplier(t *testing.T) {
	run := outside(t, "applier")
	if got, want := run("run", "."), "1 writes, <nil>\n0 writes, <nil>\nmap[ok:1]\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
	for dep := range strings.FieldsSeq(run("list", "-deps", ".")) {
		if strings.HasPrefix(dep, "github.com/prometheus/") || strings.HasPrefix(dep, "google.golang.org/grpc") ||
			strings.HasPrefix(dep, "github.com/ionos-cloud/") {
			t.Errorf("the applier brings %s along", dep)
		}
	}
}

func TestThePlannerBringsNoClientAlong(t *testing.T) {
	run := outside(t, "outside")
	ours, err := os.ReadFile("../../services/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	planner := false
	for line := range strings.Lines(run("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}\t{{.Module.Path}}\t{{.Module.Version}}{{end}}", ".")) {
		pkg, version, _ := strings.Cut(strings.TrimSpace(line), "\t")
		path, version, _ := strings.Cut(version, "\t")
		planner = planner || pkg == "github.com/slicefeed/slicefeed/services/writer/planner"
		switch path {
		case "example.org/outside", "github.com/slicefeed/slicefeed/services":
			continue
		case "k8s.io/client-go", "google.golang.org/grpc", "github.com/ionos-cloud/sdk-go/v6", "github.com/prometheus/client_golang":
			t.Errorf("the planner brings %s along", pkg)
		}
		if !strings.Contains(string(ours), "\t"+path+" "+version) {
			t.Errorf("%s is of %s %s, which services/go.mod does not ask for", pkg, path, version)
		}
	}
	if !planner {
		t.Error("the planner is not among the packages: does the test look at the right program?")
	}
}
