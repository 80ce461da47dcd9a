package controlplane

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// checkout makes a checkout whose lab/upstream needs no network and no minutes: the
// programs' packages are replaced by tiny ones. It becomes the working directory.
func checkout(t *testing.T) (source string) {
	t.Helper()
	root := t.TempDir()
	source = filepath.Join(root, "lab", "upstream")
	write := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const program = "package main\n\nfunc main() { println(\"hello\") }\n"
	write(filepath.Join(source, "etcd", "go.mod"), "module go.etcd.io/etcd/server/v3\n\ngo 1.26\n")
	write(filepath.Join(source, "etcd", "main.go"), program)
	write(filepath.Join(source, "kubernetes", "go.mod"), "module k8s.io/kubernetes\n\ngo 1.26\n")
	write(filepath.Join(source, "kubernetes", "cmd", "kube-apiserver", "main.go"), program)
	write(filepath.Join(source, "kubernetes", "cmd", "kubectl", "main.go"), program)
	write(filepath.Join(source, "kubernetes", "cmd", "kube-controller-manager", "main.go"), program)
	write(filepath.Join(source, proxychoice, "main.go"), program)
	write(filepath.Join(source, "go.mod"), `module upstream

go 1.26

require (
	go.etcd.io/etcd/server/v3 v3.0.0
	k8s.io/kubernetes v1.0.0
)

replace (
	go.etcd.io/etcd/server/v3 => ./etcd
	k8s.io/kubernetes => ./kubernetes
)
`)
	write(filepath.Join(source, "go.sum"), "")
	write(filepath.Join(source, "oldest", "go.mod"), `module oldest

go 1.26

require k8s.io/kubernetes v0.9.0

replace k8s.io/kubernetes => ../kubernetes
`)
	write(filepath.Join(source, "oldest", "go.sum"), "")
	write(filepath.Join(source, "controllers", "go.mod"), `module controllers

go 1.26

require k8s.io/kubernetes v1.0.0

replace k8s.io/kubernetes => ../kubernetes
`)
	write(filepath.Join(source, "controllers", "go.sum"), "")
	write(filepath.Join(source, "dns", "go.mod"), "module github.com/coredns/coredns\n\ngo 1.26\n")
	write(filepath.Join(source, "dns", "main.go"), program)
	write(filepath.Join(source, "coredns", "go.mod"), `module coredns

go 1.26

require github.com/coredns/coredns v1.15.0

replace github.com/coredns/coredns => ../dns
`)
	write(filepath.Join(source, "coredns", "go.sum"), "")
	t.Chdir(filepath.Join(root, "lab"))
	t.Setenv(CacheEnv, filepath.Join(root, "cache"))
	t.Setenv(KubernetesEnv, "")
	return source
}

func TestProgramsAreBuiltOnceHoweverManyAsk(t *testing.T) {
	checkout(t)
	var log lineLog
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if _, err := Build(t.Context(), &log); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	programs, err := Build(t.Context(), &log)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{programs.Etcd, programs.KubeAPIServer, programs.Kubectl} {
		if info, err := os.Stat(path); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got := strings.Count(string(log.data), "kube-apiserver is built"); got != 1 {
		t.Errorf("built %d times:\n%s", got, log.data)
	}
	entries, err := os.ReadDir(filepath.Dir(programs.Etcd))
	if err != nil || len(entries) != 3 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func TestAFailedBuildSaysWhatTheCompilerSaid(t *testing.T) {
	source := checkout(t)
	broken := filepath.Join(source, "kubernetes", "cmd", "kubectl", "main.go")
	if err := os.WriteFile(broken, []byte("package main\n\nfunc main() { nonsense() }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Build(t.Context(), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "undefined: nonsense") {
		t.Errorf("got %v", err)
	}
	module := newest
	module.dir = source
	dir, err := module.programsDir()
	if err != nil {
		t.Fatal(err)
	}
	if got := module.missing(dir); len(got) != 1 || got[0] != "kubectl" {
		t.Errorf("missing are %v: what was finished must stay", got)
	}
}

func TestOtherVersionsGetAnotherDirectory(t *testing.T) {
	source := checkout(t)
	module := newest
	module.dir = source
	before, err := module.programsDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "go.sum"), []byte("other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	after, err := module.programsDir()
	if err != nil {
		t.Fatal(err)
	}
	if before == after {
		t.Errorf("both are in %s", before)
	}
}

func TestTheOldestKubernetesHasAnAPIServerOfItsOwnAndNothingElse(t *testing.T) {
	checkout(t)
	usual, err := Build(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(KubernetesEnv, "oldest")
	var log lineLog
	got, err := Build(t.Context(), &log)
	if err != nil {
		t.Fatal(err)
	}
	if got.KubeAPIServer == usual.KubeAPIServer {
		t.Errorf("the API server is the usual one, %s", got.KubeAPIServer)
	}
	if _, err := os.Stat(got.KubeAPIServer); err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(log.data), "kube-apiserver of Kubernetes v0.9.0") {
		t.Errorf("it does not say what it builds:\n%s", log.data)
	}
	got.KubeAPIServer = usual.KubeAPIServer
	if got != usual {
		t.Errorf("the other programs are %v, want %v", got, usual)
	}
}

func TestBuildsOtherProgramsOnDemandOnly(t *testing.T) {
	checkout(t)
	var log lineLog
	if _, err := Build(t.Context(), &log); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log.data), "kube-controller-manager") {
		t.Errorf("it is built for all:\n%s", log.data)
	}
	paths, err := BuildPrograms(t.Context(), &log, "kube-controller-manager", "coredns")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	if !strings.Contains(string(log.data), "coredns of github.com/coredns/coredns v1.15.0") {
		t.Errorf("it does not say what it builds:\n%s", log.data)
	}
}

func TestAKubernetesThatThereIsNotIsRefused(t *testing.T) {
	checkout(t)
	t.Setenv(KubernetesEnv, "1.31")
	if _, err := Build(
		t.Context(),
		io.Discard,
	); err == nil ||
		!strings.Contains(err.Error(), `SLICEFEED_KUBERNETES is "1.31": want "oldest"`) {
		t.Errorf("got %v", err)
	}
}

func TestWaitingForAnotherBuildEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), io.Discard, path)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, &log, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), "waiting") {
		t.Errorf("it did not say that it waits: %q", log.String())
	}
	unlock()
	again, err := lock(t.Context(), io.Discard, path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestOutsideOfACheckoutItSaysSo(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := Build(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "checkout") {
		t.Errorf("got %v", err)
	}
}

func TestProgramsForAnotherPlatformGetAnotherDirectory(t *testing.T) {
	for _, c := range []struct{ goos, goarch, want string }{
		{"linux", "", runtime.GOARCH},
		{"linux", "arm64", "arm64"},
		{"darwin", "arm64", "darwin/arm64"},
		{"", "riscv64", target(runtime.GOOS, "riscv64")},
	} {
		if got := target(c.goos, c.goarch); got != c.want {
			t.Errorf("GOOS=%s GOARCH=%s: target %q, want %q", c.goos, c.goarch, got, c.want)
		}
	}
	module := newest
	module.dir = checkout(t)
	seen := map[string]string{}
	for _, platform := range [][2]string{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}} {
		t.Setenv("GOOS", platform[0])
		t.Setenv("GOARCH", platform[1])
		dir, err := module.programsDir()
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[dir]; other != "" {
			t.Errorf("%v and %s share %s", platform, other, dir)
		}
		seen[dir] = platform[0] + "/" + platform[1]
	}
}

func TestOnlyTheProgramsAskedForAreBuilt(t *testing.T) {
	checkout(t)
	paths, err := BuildPrograms(t.Context(), io.Discard, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(paths[0]))
	if err != nil || len(entries) != 1 || entries[0].Name() != "kubectl" {
		t.Errorf("built are %v (%v), want kubectl alone", entries, err)
	}
	if _, err := BuildPrograms(t.Context(), io.Discard, "kubelet"); err == nil {
		t.Error("no error for a program that is not built from here")
	}
}
