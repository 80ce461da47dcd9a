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

// Result is what became of one mutant.
type Result struct {
	Mutant Mutant

	Suite, Test string // the package, and the test of it, that caught it; empty: its suites missed it
	World       int    // the simulation caught it with this many worlds; 0: it was not run, or missed it
	Took        time.Duration
	Err         error // the mutant could not be tried
}

// Caught reports whether all that must catch the mutant did.
func (r Result) Caught() bool {
	return r.Err == nil && (r.Test != "" || len(r.Mutant.Suites) == 0) && (r.Mutant.Seeds == 0 || r.World > 0 && r.World <= r.Mutant.Seeds)
}

// Runner tries mutants on a checkout.
type Runner struct {
	Root string
	// Simulation is the package of the simulation, from Root; empty: there is none.
	Simulation string
}

// Try lays the mutant over the tree and runs what must catch it.
func (r Runner) Try(ctx context.Context, m Mutant) Result {
	began := time.Now()
	result := Result{Mutant: m}
	result.Err = r.try(ctx, &result)
	result.Took = time.Since(began)
	return result
}

func (r Runner) try(ctx context.Context, result *Result) error {
	m := result.Mutant
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := r.overlay(m, dir)
	if err != nil {
		return err
	}
	for _, suite := range m.Suites {
		out, failed, err := r.test(ctx, overlay, nil, "./"+suite)
		if err != nil {
			return fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		if failed {
			result.Suite, result.Test = suite, culprit(out)
			break
		}
	}
	if r.Simulation == "" || m.Seeds == 0 {
		return nil
	}
	out, failed, err := r.test(
		ctx,
		overlay,
		[]string{"SLICEFEED_SEEDS=" + strconv.Itoa(m.Seeds)},
		"./"+r.Simulation,
		"-run",
		"^TestWorlds$",
	)
	if err != nil {
		return fmt.Errorf("mutant %s in the simulation: %w", m.Name, err)
	}
	if failed {
		result.World = world(out, m.Seeds)
	}
	return nil
}

// overlay writes the mutated file, and what tells go to take it for the one in the tree.
func (r Runner) overlay(m Mutant, dir string) (string, error) {
	text, err := m.Text(r.Root)
	if err != nil {
		return "", err
	}
	root, err := filepath.Abs(r.Root)
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

// test runs a package's tests with an overlay and reports whether they failed. What does not
// build is an error: a compiler that objects has caught a slip of ours, not a bug.
func (r Runner) test(ctx context.Context, overlay string, env []string, args ...string) (out string, failed bool, err error) {
	cmd := exec.CommandContext(
		ctx,
		"go",
		slices.Concat(
			[]string{"test", "-overlay", overlay, "-vet=off", "-count=1", "-failfast", "-timeout=3m"},
			args,
			quiet(filepath.Join(r.Root, args[0])),
		)...)
	cmd.Dir = r.Root
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

// quiet are the arguments that keep the tests of a package from leaving what failed in the tree, where
// it would be the first that the next run tries, and from looking for a smaller example of it, which
// takes half a minute and nobody reads.
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

// culprit is the first test that failed, or ran when the process came to its end.
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
