package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// roleEnv makes this test a program: "get URL KUBECONFIG" requests a URL.
const roleEnv = "SLICEFEED_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	pluginTimeout = time.Second
	get := func(func(string) string) *cobra.Command {
		return &cobra.Command{Use: "get", RunE: func(cmd *cobra.Command, args []string) error {
			config, _, err := Load("test", "KUBECONFIG", args[1], "")
			if err != nil {
				return err
			}
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				return err
			}
			request, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, args[0], nil)
			if err != nil {
				return err
			}
			response, err := client.Do(request)
			if err == nil {
				err = response.Body.Close()
			}
			return err
		}}
	}
	program := command.Component[struct{}]{Name: "program", Standalone: []command.StandaloneCommand{get, NewPluginCommand}}
	os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr))
}

// startProgram starts a request of the program with a plugin that is this shell script.
func startProgram(t *testing.T, url, script string) (program *exec.Cmd, output *strings.Builder) {
	t.Helper()
	dir := t.TempDir()
	plugin, kubeconfig := filepath.Join(dir, "plugin.sh"), filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(plugin, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	text := `{clusters: [{name: a, cluster: {server: "` + url + `", insecure-skip-tls-verify: true}}], contexts: [{name: a, context: {cluster: a, user: a}}],
current-context: a, users: [{name: a, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin.sh, interactiveMode: Never}}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	program, output = exec.CommandContext(t.Context(), os.Args[0], "get", url, kubeconfig), &strings.Builder{}
	program.Env, program.Stderr = append(os.Environ(), roleEnv+"=1"), output
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	return program, output
}

func TestACredentialPluginMayTakeTime(t *testing.T) {
	var mu sync.Mutex
	var got string
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = r.Header.Get("Authorization")
	}))
	defer server.Close()
	credential := `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"secret"}}`
	program, output := startProgram(t, server.URL, "sleep 0.1; echo '"+credential+"'\n")
	err := program.Wait()
	mu.Lock()
	defer mu.Unlock()
	if err != nil || got != "Bearer secret" {
		t.Errorf("%v, the credential is %q\n%s", err, got, output)
	}
}

// It has a child that keeps its pipes open, as most scripts do.
func TestACredentialPluginThatHangsIsKilled(t *testing.T) {
	children := filepath.Join(t.TempDir(), "children")
	program, output := startProgram(t, "https://127.0.0.1:1", fmt.Sprintf("sleep 600 & echo $! >%s; wait", children))
	err := program.Wait()
	if settings.ExitCode(err) != 1 || !strings.Contains(output.String(), "plugin.sh: not finished after 1s") {
		t.Errorf("%v: %s", err, output)
	}
	child, err := os.ReadFile(children)
	if err != nil {
		t.Fatal(err)
	}
	stat := "/proc/" + strings.TrimSpace(string(child)) + "/stat"
	if process, err := os.ReadFile(stat); err == nil && !strings.Contains(string(process), ") Z ") { // nobody may wait for it
		t.Errorf("the plugin's child is left: %s", process)
	}
}
