package controlplane

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/sys/unix"
)

// CacheEnv names the variable that moves the lab's cache directory.
const CacheEnv = "SLICEFEED_CACHE_DIR"

// KubernetesEnv names the variable that chooses the API servers: those of the oldest Kubernetes that
// the product supports when it is "oldest", else of the newest one that there are modules of.
const KubernetesEnv = "SLICEFEED_KUBERNETES"

// upstream is a module that programs are built from.
type upstream struct {
	dir      string // below lab/upstream
	module   string // whose version the programs have; empty: Kubernetes
	packages []program
	also     string // the file of ours that goes into a program, besides the module itself
}

type program struct{ name, path string }

var (
	apiServer = program{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"}
	newest    = upstream{
		packages: []program{{"etcd", "go.etcd.io/etcd/server/v3"}, apiServer, {"kubectl", "k8s.io/kubernetes/cmd/kubectl"}},
		also:     filepath.Join(proxychoice, "main.go"),
	}
	proxyChoice = upstream{
		packages: []program{{proxychoice, "./" + proxychoice}}, // kube-proxy's code with a main of ours
		also:     filepath.Join(proxychoice, "main.go"),
	}
	oldest = upstream{dir: "oldest", packages: []program{apiServer}}
	// A module of its own, because it needs more than any test does.
	controllers = upstream{dir: "controllers", packages: []program{
		{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
		{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
		{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
		{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
	}}
	// A module of its own, because it needs another version of client-go.
	coreDNS = upstream{dir: "coredns", module: "github.com/coredns/coredns", packages: []program{
		{"coredns", "github.com/coredns/coredns"},
	}}
	// One module each, because they need different versions of client-go.
	certManager = upstream{
		dir: "certmanager", module: "github.com/cert-manager/cert-manager",
		packages: []program{{"cert-manager", "."}}, // cert-manager's controllers with a main of ours
		also:     "main.go",
	}
	trustManager = upstream{dir: "trustmanager", module: "github.com/cert-manager/trust-manager", packages: []program{
		{"trust-manager", "github.com/cert-manager/trust-manager/cmd/trust-manager"},
	}}
)

const (
	k8sModule   = "k8s.io/kubernetes"
	proxychoice = "proxychoice"
	// The version is not in the module's code. The one that the module requires is appended.
	ldflags = "-s -w -X k8s.io/component-base/version.gitVersion="
)

// Programs are the paths of the upstream programs.
type Programs struct {
	Etcd, KubeAPIServer, Kubectl string
}

// CacheDir returns the directory for what the lab keeps between runs.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory (set %s): %w", CacheEnv, err)
	}
	return filepath.Join(base, "slicefeed"), nil
}

// Build returns the upstream programs, after building those that are not in the cache
// directory yet; what it does is told on log. Several callers, of other processes too,
// do not build twice. A first build downloads modules, so it belongs outside of a
// network namespace.
func Build(ctx context.Context, log io.Writer) (Programs, error) {
	which := os.Getenv(KubernetesEnv)
	if which != "" && which != "oldest" {
		return Programs{}, fmt.Errorf("%s is %q: want \"oldest\", or leave it unset for the newest", KubernetesEnv, which)
	}
	checkout, err := Checkout()
	if err != nil {
		return Programs{}, err
	}
	dir, err := newest.build(ctx, log, checkout)
	if err != nil {
		return Programs{}, err
	}
	programs := Programs{
		Etcd:          filepath.Join(dir, "etcd"),
		KubeAPIServer: filepath.Join(dir, apiServer.name),
		Kubectl:       filepath.Join(dir, "kubectl"),
	}
	if which == "oldest" {
		if dir, err = oldest.build(ctx, log, checkout); err != nil {
			return Programs{}, err
		}
		programs.KubeAPIServer = filepath.Join(dir, apiServer.name)
	}
	return programs, nil
}

// BuildPrograms returns the paths of some of the newest upstream programs, which it builds for the GOOS and
// GOARCH of the environment. Otherwise it does as Build does.
func BuildPrograms(ctx context.Context, log io.Writer, names ...string) (paths []string, err error) {
	checkout, err := Checkout()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		module, err := programModule(name)
		if err != nil {
			return nil, err
		}
		dir, err := module.build(ctx, log, checkout)
		if err != nil {
			return nil, err
		}
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths, nil
}

// programModule returns the module that a program is built from, with no other program.
func programModule(name string) (upstream, error) {
	for _, module := range []upstream{newest, proxyChoice, controllers, coreDNS, certManager, trustManager} {
		for _, p := range module.packages {
			if p.name == name {
				module.packages = []program{p}
				return module, nil
			}
		}
	}
	return upstream{}, fmt.Errorf("unknown upstream program %q", name)
}

// build returns the directory that the module's programs are in.
func (u upstream) build(ctx context.Context, log io.Writer, checkout string) (string, error) {
	u.dir = filepath.Join(checkout, "lab", "upstream", u.dir)
	dir, err := u.programsDir()
	if err != nil {
		return "", err
	}
	if len(u.missing(dir)) > 0 {
		if err := u.buildLocked(ctx, log, dir); err != nil {
			return "", fmt.Errorf("build the upstream programs into %s: %w", dir, err)
		}
	}
	return dir, nil
}

// Checkout returns the checkout that the program runs in or was built into.
func Checkout() (string, error) {
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if program, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(program))
	}
	for _, dir := range starts {
		for ; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "lab", "upstream", "go.mod")); err == nil {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("find the checkout: neither above %s", strings.Join(starts, " nor above "))
}

// programsDir names the directory after everything that the programs depend on.
func (u upstream) programsDir() (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	version, err := u.version()
	if err != nil {
		return "", err
	}
	inputs := []string{"go.mod", "go.sum"}
	if u.also != "" {
		inputs = append(inputs, u.also)
	}
	hash := sha256.New()
	for _, name := range inputs {
		raw, err := os.ReadFile(filepath.Join(u.dir, name))
		if err != nil {
			return "", fmt.Errorf("read what the upstream programs are built from: %w", err)
		}
		hash.Write(raw)
	}
	fmt.Fprint(hash, runtime.Version(), target(os.Getenv("GOOS"), os.Getenv("GOARCH")), ldflags+version)
	return filepath.Join(cache, "upstream", hex.EncodeToString(hash.Sum(nil))[:12]), nil
}

// target names what go build compiles for with these variables. Linux is implied, so that what a Linux
// machine has in its cache stays valid.
func target(goos, goarch string) string {
	goarch = cmp.Or(goarch, runtime.GOARCH)
	if goos = cmp.Or(goos, runtime.GOOS); goos != "linux" {
		return goos + "/" + goarch
	}
	return goarch
}

// version is that of the programs, as the module requires them.
func (u upstream) version() (string, error) {
	module := cmp.Or(u.module, k8sModule)
	path := filepath.Join(u.dir, "go.mod")
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	parsed, err := modfile.Parse(path, raw, nil)
	if err != nil {
		return "", err
	}
	for _, r := range parsed.Require {
		if r.Mod.Path == module {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s requires no %s", path, module)
}

// missing lists the programs that are not in dir.
func (u upstream) missing(dir string) (programs []string) {
	for _, p := range u.packages {
		if _, err := os.Stat(filepath.Join(dir, p.name)); err != nil {
			programs = append(programs, p.name)
		}
	}
	return programs
}

func (u upstream) buildLocked(ctx context.Context, log io.Writer, dir string) error {
	version, err := u.version()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := lock(log, dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	programs := u.missing(dir) // again: someone else may have built them meanwhile
	if len(programs) == 0 {
		return nil
	}
	// In the same directory, so that the moves below are renames.
	tmp, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // what is left over is in the way of nothing
	fmt.Fprintf(log, "Building %s of %s %s once, into %s; from nothing this takes about 4 minutes on 2 cores.\n",
		strings.Join(programs, ", "), cmp.Or(u.module, "Kubernetes"), version, dir)
	start := time.Now()
	for _, p := range u.packages {
		final := filepath.Join(dir, p.name)
		if _, err := os.Stat(final); err == nil {
			continue
		}
		// One after the other: what is finished stays when the rest is interrupted.
		built := filepath.Join(tmp, p.name)
		if err := goBuild(ctx, log, u.dir, version, p.path, built); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := os.Rename(built, final); err != nil {
			return err
		}
	}
	fmt.Fprintf(log, "Built in %s.\n", time.Since(start).Round(time.Second))
	return nil
}

// goBuild runs go build and tells every ten seconds how far it is.
func goBuild(ctx context.Context, log io.Writer, source, version, path, output string) error {
	// Verbose, because that lists each package as it is compiled.
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-ldflags", ldflags+version, "-o", output, path)
	cmd.Dir = source
	// The user's GOFLAGS could steer the build elsewhere (-mod=vendor), as a go.work would.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	// The compilers must end too when ctx does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	lines := &lineLog{}
	cmd.Stdout, cmd.Stderr = lines, lines
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }() // received below in any case
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	name := filepath.Base(output)
	for {
		select {
		case err := <-done:
			if err == nil {
				fmt.Fprintf(log, "  %s is built (%s).\n", name, time.Since(start).Round(time.Second))
				return nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("go build %s: %w\n%s", path, err, lines.tail())
		case <-tick.C:
			fmt.Fprintf(log, "  %s: %d packages compiled, %s\n", name, lines.count(), time.Since(start).Round(time.Second))
		}
	}
}

// lock takes a lock on a file that other processes take too.
func lock(log io.Writer, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		fmt.Fprintf(log, "Another process is building the upstream programs; waiting for it.\n")
		err = unix.EINTR
	}
	for errors.Is(err, unix.EINTR) {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil // which unlocks
}
