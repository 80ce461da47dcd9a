package command

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// roleEnv makes this test a program: "get URL PLUGIN" requests a URL with a credential of the plugin.
const roleEnv = "SLICEFEED_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	pluginTimeout = time.Second
	get := func(func(string) string) *cobra.Command {
		return &cobra.Command{Use: "get", RunE: func(cmd *cobra.Command, args []string) error {
			config := &rest.Config{Host: args[0], ExecProvider: &api.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", Command: args[1], InteractiveMode: api.NeverExecInteractiveMode,
			}}
			LimitPlugin(config)
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
	program := Component[countConfig]{Name: "program", Standalone: []StandaloneCommand{get, NewPluginCommand}}
	os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr))
}

// startProgram starts a request of the program with a plugin that is this shell script.
func startProgram(t *testing.T, url, script string) (program *exec.Cmd, output *strings.Builder) {
	t.Helper()
	plugin := filepath.Join(t.TempDir(), "plugin.sh")
	if err := os.WriteFile(plugin, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	program, output = exec.CommandContext(t.Context(), os.Args[0], "get", url, plugin), &strings.Builder{}
	program.Env, program.Stderr = append(os.Environ(), roleEnv+"=1"), output
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	return program, output
}

func TestACredentialPluginMayTakeTime(t *testing.T) {
	var mu sync.Mutex
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
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
	program, output := startProgram(t, "http://127.0.0.1:1", fmt.Sprintf("sleep 600 & echo $! >%s; wait", children))
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

func TestASignalEndsWhatCannotBeCanceled(t *testing.T) {
	defer func(was time.Duration) { endTimeout = was }(endTimeout)
	endTimeout = 100 * time.Millisecond
	released := make(chan struct{})
	defer close(released)
	for want, run := range map[string]func(context.Context) error{
		"did not end within 100ms": func(context.Context) error { <-released; return nil },
		"interrupted":              func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("list nodes: %w", ctx.Err()) },
	} {
		started, ended := make(chan struct{}), make(chan error)
		root := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) error {
			close(started)
			return run(cmd.Context())
		}}
		root.SetArgs(nil)
		go func() { ended <- Execute(root) }()
		<-started
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canceled") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
