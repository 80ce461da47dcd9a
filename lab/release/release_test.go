// Package release rehearses a release as those meet it who install one: the modules come from a
// proxy, at a version, and replace nothing.
package release

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
	"golang.org/x/sys/unix"
)

const (
	root      = "../.."
	generated = "github.com/slicefeed/slicefeed/gen"
	services  = "github.com/slicefeed/slicefeed/services"
	version   = "v0.0.0-rehearsal"
)

// run runs the go command somewhere outside of the workspace, and returns what it prints.
func run(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS="), env...)
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, told.String())
	}
	return strings.TrimSpace(string(out))
}

// proxy is a module proxy in a directory, at first without any module.
type proxy struct {
	t   *testing.T
	dir string
}

// release puts a module of the checkout into the proxy, with a go.mod as it is when tagged.
func (p proxy) release(path string, tagged func(dir string)) {
	p.t.Helper()
	copied := p.t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(root, filepath.Base(path)))); err != nil {
		p.t.Fatal(err)
	}
	tagged(copied)
	gomod, err := os.ReadFile(filepath.Join(copied, "go.mod"))
	if err != nil {
		p.t.Fatal(err)
	}
	at := filepath.Join(p.dir, path, "@v")
	if err := os.MkdirAll(at, 0o700); err != nil {
		p.t.Fatal(err)
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
	if err != nil {
		p.t.Fatal(err)
	}
	for name, content := range map[string][]byte{"list": []byte(version + "\n"), version + ".mod": gomod, version + ".info": info} {
		if err := os.WriteFile(filepath.Join(at, name), content, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := zip.CreateFromDir(file, module.Version{Path: path, Version: version}, copied); err != nil {
		p.t.Fatalf("zip %s: %v", path, err)
	}
	if err := file.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// forget removes the rehearsed version from the module cache, which would give the next rehearsal
// this one's code. The cache is the usual one: with one of its own the rehearsal would compile
// every dependency anew.
func forget(t *testing.T, cache string) {
	t.Helper()
	for _, path := range []string{generated, services} {
		unpacked := filepath.Join(cache, path+"@"+version)
		_ = filepath.WalkDir(unpacked, func(dir string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chmod(dir, 0o700) // go makes them read-only
			}
			return err
		})
		packed, err := filepath.Glob(filepath.Join(cache, "cache/download", path, "@v", version+".*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append(packed, unpacked) {
			if err := os.RemoveAll(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// alone waits until no other rehearsal uses the same module cache.
func alone(t *testing.T, cache string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(cache, "cache"), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(cache, "cache/slicefeed-rehearsal.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
}

func TestBothBinariesCanBeInstalledFromAReleaseThatReplacesNothing(t *testing.T) {
	outside := t.TempDir()
	cache := run(t, outside, nil, "env", "GOMODCACHE")
	alone(t, cache)
	forget(t, cache)
	t.Cleanup(func() { forget(t, cache) })

	p := proxy{t: t, dir: t.TempDir()}
	bin := t.TempDir()
	env := []string{
		"GOBIN=" + bin,
		// What is in the cache already, so that nobody is asked for it; then whoever is asked otherwise.
		"GOPROXY=file://" + p.dir + ",file://" + filepath.Join(cache, "cache/download") + "," + run(t, outside, nil, "env", "GOPROXY"),
		// Ours are in no sum database, and services/go.sum has held the others to theirs.
		"GONOSUMDB=*",
		// go keeps an index of what files a version has, for good: it would look for those of the
		// first rehearsal.
		"GODEBUG=goindex=0",
	}
	p.release(generated, func(string) {})
	if got := run(t, outside, env, "list", "-m", generated+"@latest"); got != generated+" "+version {
		t.Fatalf("gen is tagged first, and then the newest is %q", got)
	}
	p.release(services, func(dir string) {
		run(t, dir, nil, "mod", "edit", "-dropreplace="+generated, "-require="+generated+"@"+version)
		if text := run(t, dir, nil, "mod", "edit", "-json"); !strings.Contains(text, `"Replace": null`) {
			t.Errorf("a release has to replace nothing, and go.mod is %s", text)
		}
	})

	for _, half := range []string{"inventory", "writer"} {
		t.Run(half, func(t *testing.T) {
			begun := time.Now()
			run(t, outside, env, "install", services+"/"+half+"@"+version)
			t.Logf("installed in %v", time.Since(begun).Round(time.Millisecond))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, filepath.Join(bin, half), "version").CombinedOutput()
			if want := fmt.Sprintf("slicefeed-%s %s\n", half, version); err != nil || !strings.HasPrefix(string(out), want) {
				t.Errorf("it says %q (%v), want %q", out, err, want)
			}
			if got := run(
				t,
				outside,
				nil,
				"version",
				"-m",
				filepath.Join(bin, half),
			); strings.Contains(got, "=>") ||
				!strings.Contains(got, generated+"\t"+version) {
				t.Errorf("it is not built from what was released:\n%s", got)
			}
		})
	}
}
