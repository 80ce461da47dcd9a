package generic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Config says what to change, and by what to judge it.
type Config struct {
	Root    string   // of the checkout
	Package string   // the directory of what is changed, from there
	Tests   []string // directories of the tests that count, from there; "dir:Name" is those of a name alone
	Only    string   // a list of survivors, as was told: only those are tried; empty: all changes are
	AtOnce  int      // changes tried at the same time
	Tell    func(format string, args ...any)
}

// Run tries every change, and returns those that the tests do not notice, in order.
func Run(ctx context.Context, cfg Config) ([]Change, error) {
	dir, tell := cfg.Package, cfg.Tell
	root, err := filepath.Abs(cfg.Root)
	if err != nil {
		return nil, err
	}
	sources, changes, err := Sleeping(filepath.Join(root, dir))
	if err != nil {
		return nil, err
	}
	changes = slices.DeleteFunc(changes, func(c Change) bool {
		return cfg.Only != "" && !strings.Contains("\n"+cfg.Only+"\n", "\n"+c.String()+"\n")
	})
	work, err := os.MkdirTemp("", "generic-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	suites, err := build(ctx, root, work, sources, cfg.Tests)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for _, s := range suites {
		if noticed, err := s.run(ctx, 0, 5*time.Minute); err != nil || noticed {
			return nil, fmt.Errorf("the tests of %s fail without any change (%w)", s.dir, err)
		}
	}
	limit := max(20*time.Second, 10*time.Since(began))
	tell("%s: %d changes, the tests take %s", dir, len(changes), time.Since(began).Round(time.Millisecond))
	var mu sync.Mutex
	alive := map[int]bool{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cfg.AtOnce)
	for _, c := range changes {
		group.Go(func() error {
			for _, s := range suites {
				if noticed, err := s.run(ctx, c.Number, limit); err != nil || noticed {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			alive[c.Number] = true
			tell("%s", c)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var survivors []Change
	for _, c := range changes {
		if alive[c.Number] {
			survivors = append(survivors, c)
		}
	}
	tell("%s: %d changes, %d survivors", dir, len(changes), len(survivors))
	return survivors, nil
}

// suite is the tests of one package, with all changes asleep in what they test.
type suite struct{ binary, dir, name string }

func build(ctx context.Context, root, work string, sources map[string]string, tests []string) ([]suite, error) {
	replace := map[string]string{}
	for path, text := range sources {
		replace[path] = filepath.Join(work, filepath.Base(path))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	raw, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return nil, err
	}
	overlay := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(overlay, raw, 0o600); err != nil {
		return nil, err
	}
	var suites []suite
	for i, test := range tests {
		test, name, _ := strings.Cut(test, ":")
		s := suite{filepath.Join(work, strconv.Itoa(i)+".test"), filepath.Join(root, test), name}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", s.binary, ".")
		cmd.Dir = s.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", test, err, out)
		}
		suites = append(suites, s)
	}
	return suites, nil
}

// run reports whether the tests notice the change of this number. One that never ends, or takes all
// memory, is noticed.
func (s suite) run(ctx context.Context, number int, limit time.Duration) (noticed bool, err error) {
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(timed, "sh", "-c", `ulimit -v 8000000; exec "$0" -test.failfast "$@"`, s.binary)
	cmd.Args = append(cmd.Args, Quiet(s.dir)...)
	if s.name != "" {
		cmd.Args = append(cmd.Args, "-test.run=^"+s.name+"$")
	}
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "MUTANT="+strconv.Itoa(number))
	err = cmd.Run()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil && cmd.ProcessState == nil {
		return false, err
	}
	return err != nil, nil
}

// Quiet are the arguments that keep the tests of a package from leaving what failed in the tree, where
// it would be the first that the next run tries, and from looking for a smaller example of it, which
// takes half a minute and nobody reads.
func Quiet(dir string) []string {
	tests, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, path := range tests {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(`"pgregory.net/rapid"`)) {
			return []string{"-rapid.nofailfile", "-rapid.shrinktime=0s"}
		}
	}
	return nil
}
