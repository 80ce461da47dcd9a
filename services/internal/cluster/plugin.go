package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
)

// pluginTimeout limits a credential plugin: as long as a check of preflight, and longer than a leader can do without
// renewing its Lease. Only tests change it.
var pluginTimeout = 15 * time.Second

// PluginCommand is the command of NewPluginCommand.
const PluginCommand = "run-credential-plugin"

// limitPlugin limits how long the credential plugin of a kubeconfig runs. client-go waits for it without a limit, whatever
// becomes of the request, and all other requests wait with it (https://issue.k8s.io/108849). It gives no access to the
// process either. So the plugin becomes a child of this program's command of NewPluginCommand.
func limitPlugin(config *rest.Config) {
	self, err := os.Executable()
	if plugin := config.ExecProvider; plugin != nil && err == nil {
		if _, err = exec.LookPath(plugin.Command); err == nil { // else client-go reports how to install it
			plugin.Command, plugin.Args = self, append([]string{PluginCommand, plugin.Command}, plugin.Args...)
		}
	}
}

// NewPluginCommand is the command for limitPlugin. It kills a plugin that runs too long, with all that it has started,
// unless it may ask a person.
func NewPluginCommand(func(string) string) *cobra.Command {
	return &cobra.Command{
		Use: PluginCommand, Hidden: true, DisableFlagParsing: true, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.Contains(os.Getenv("KUBERNETES_EXEC_INFO"), `"interactive":true`) {
				path, err := exec.LookPath(args[0])
				return cmp.Or(err, syscall.Exec(path, args, os.Environ())) //nolint:gosec // the kubeconfig names the plugin
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), pluginTimeout, fmt.Errorf("not finished after %s", pluginTimeout))
			defer cancel()
			plugin := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the same
			plugin.Stdin, plugin.WaitDelay = os.Stdin, time.Second
			// Pipes of our own: a process that has left the group may keep those of client-go open, which waits for their end.
			plugin.Stdout, plugin.Stderr = struct{ io.Writer }{cmd.OutOrStdout()}, struct{ io.Writer }{cmd.ErrOrStderr()}
			plugin.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			plugin.Cancel = func() error { return syscall.Kill(-plugin.Process.Pid, syscall.SIGKILL) }
			err := plugin.Run()
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return fmt.Errorf("credential plugin %s: %w", args[0], err)
			}
			return nil
		},
	}
}
