package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// simulation is the package whose TestWorlds must catch the mutants that have seeds.
const simulation = "lab/sim"

// result is what became of one mutant.
type result struct {
	mutant      Mutant
	suite, test string // the package, and the test of it, that caught it; empty: its suites missed it
	world       int    // the simulation caught it with this many worlds; 0: it was not run, or missed it
	took        time.Duration
	err         error // the mutant could not be tried
}

// caught reports whether all that must catch the mutant did.
func (r result) caught() bool {
	return r.err == nil && r.test != "" && (r.mutant.Seeds == 0 || r.world > 0)
}

func (r result) String() string {
	what, by := "caught", r.test+" in "+r.suite
	switch {
	case r.err != nil:
		what, by = "ERROR", r.err.Error()
	case r.test == "":
		what, by = "MISSED", "by "+strings.Join(r.mutant.Suites, ", ")
	case !r.caught():
		what, by = "MISSED", fmt.Sprintf("by %d worlds, caught by %s", r.mutant.Seeds, by)
	case r.world > 0:
		by += fmt.Sprintf(", and by world %d (limit %d)", r.world, r.mutant.Seeds)
	}
	return fmt.Sprintf("%-38s %-7s %5.1fs  %s", r.mutant.Name, what, r.took.Seconds(), by)
}

// try runs what must catch the mutant, on the checkout at root.
func try(ctx context.Context, root string, m Mutant) result {
	began := time.Now()
	r := result{mutant: m}
	r.err = run(ctx, root, &r)
	r.took = time.Since(began)
	return r
}

func run(ctx context.Context, root string, r *result) error {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := r.mutant.overlay(root, dir)
	if err != nil {
		return err
	}
	for _, suite := range r.mutant.Suites {
		out, failed, err := test(ctx, root, overlay, nil, "./"+suite)
		if err != nil {
			return err
		}
		if failed {
			r.suite, r.test = suite, culprit(out)
			break
		}
	}
	if r.mutant.Seeds == 0 {
		return nil
	}
	seeds := []string{"SLICEFEED_SEEDS=" + strconv.Itoa(r.mutant.Seeds)}
	out, failed, err := test(ctx, root, overlay, seeds, "./"+simulation, "-run", "^TestWorlds$")
	if failed {
		r.world = world(out, r.mutant.Seeds)
	}
	return err
}

// overlay writes the file with the bug, and what has go read it instead of the one in the tree.
func (m Mutant) overlay(root, dir string) (string, error) {
	text, err := m.Text(root)
	if err != nil {
		return "", err
	}
	file, list := filepath.Join(dir, filepath.Base(m.File)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.File): file}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	return list, os.WriteFile(list, replace, 0o600)
}

// notBuilt is how go test says that it is not the tests which have failed.
var notBuilt = regexp.MustCompile(`(?m)\[(build|setup) failed\]`)

// test runs a package's tests with an overlay and reports whether they failed. What does not build is an error: then the
// mutant is wrong.
func test(ctx context.Context, root, overlay string, env []string, args ...string) (out string, failed bool, err error) {
	args = slices.Concat([]string{"test", "-overlay", overlay, "-vet=off", "-count=1", "-failfast", "-timeout=3m"}, args,
		quiet(filepath.Join(root, args[0])))
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	raw, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return string(raw), false, nil
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case cmd.ProcessState == nil || notBuilt.Match(raw):
		return "", false, fmt.Errorf("the tests could not be run: %w\n%s", err, raw)
	}
	return string(raw), true, nil
}

// quiet are the arguments that keep the property tests of a package from leaving what failed in the tree, where the
// next run would try it first, and from searching for a smaller example, which takes half a minute.
func quiet(dir string) []string {
	tests, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, path := range tests {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(`"pgregory.net/rapid"`)) {
			return []string{"-rapid.nofailfile", "-rapid.shrinktime=0s"}
		}
	}
	return nil
}

var (
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL: ((?:Test|Fuzz|Example)\w*)`)
	running = regexp.MustCompile(`(?m)^\s+(Test\w+)\S* \(\S+\)$`)
	number  = regexp.MustCompile(`(?m)\bseed[ =](\d+)`)
)

// culprit is the first test that failed, or that ran when the process ended.
func culprit(out string) string {
	for _, of := range []*regexp.Regexp{failure, running} {
		if found := of.FindStringSubmatch(out); found != nil {
			return found[1]
		}
	}
	return "(" + strings.TrimSpace(strings.SplitN(out, "\n", 2)[0]) + ")"
}

// world is the lowest seed that the simulation names as failed, counted from 1.
func world(out string, most int) int {
	lowest := most
	for _, found := range number.FindAllStringSubmatch(out, -1) {
		if n, err := strconv.Atoi(found[1]); err == nil {
			lowest = min(lowest, max(n, 1))
		}
	}
	return lowest
}
