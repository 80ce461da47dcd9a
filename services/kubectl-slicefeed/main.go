// Command kubectl-slicefeed is a kubectl plugin for operators. It asks the inventory and the writer, each in its own
// cluster, and shows one result.
//
// It uses the kubeconfig of the person who runs it and nothing else: it finds the Pods by their labels and forwards a
// port of this machine to their debug listeners, as kubectl port-forward does. So it needs the rights to list Pods and
// to forward ports. It never reads a credential of a component and changes nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/slicefeed/slicefeed/services/internal/command"
)

// Set by the linker.
var version, commit string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	klog.SetOutput(os.Stderr)
	err := newCommand(os.Getenv).ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kubectl slicefeed: %v\n", err)
	}
	stop()
	os.Exit(exitCode(err))
}

// usageError is an invalid flag or argument.
type usageError struct{ error }

// exitCode returns 2 for an invalid flag or argument and 1 for any other error, as the components do.
func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	if err != nil {
		return 1
	}
	return 0
}

// Names of the environment variables that stand for the flags of the contexts.
const (
	securedContextEnv   = "SLICEFEED_SECURED_CONTEXT"
	consumingContextEnv = "SLICEFEED_CONSUMING_CONTEXT"
)

func newCommand(getenv func(string) string) *cobra.Command {
	o := &options{debugPort: 6060}
	root := &cobra.Command{
		Use:   "kubectl-slicefeed",
		Short: "Show what the inventory and the writer of Slicefeed do, and why",
		Long: `Show what the inventory and the writer of Slicefeed do, and why.

Each component is asked in the cluster that its context names. With neither context, both are looked for in the
current one; with one of them, only that component is asked.

Exit codes: 0 success; 1 a problem was found, or the command failed; 2 invalid flags or arguments.`,
		Version:      command.Version(version),
		SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl slicefeed"},
	}
	if commit := command.Commit(commit); commit != "" {
		root.Version += " (" + commit + ")"
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.Args = func(_ *cobra.Command, args []string) error { // else cobra reports it itself, as another error
		if len(args) == 0 {
			return nil
		}
		return usageError{fmt.Errorf("unknown command %q; kubectl slicefeed --help lists all commands", args[0])}
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags := root.PersistentFlags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "your kubeconfig; as for kubectl when unset")
	flags.StringVar(
		&o.secured.context,
		"secured-context",
		getenv(securedContextEnv),
		"context of the cluster with the inventory [$"+securedContextEnv+"]",
	)
	flags.StringVar(
		&o.consuming.context,
		"consuming-context",
		getenv(consumingContextEnv),
		"context of the cluster with the writer [$"+consumingContextEnv+"]",
	)
	flags.StringVar(&o.secured.namespace, "secured-namespace", "", "namespace of the inventory; all when unset")
	flags.StringVar(&o.consuming.namespace, "consuming-namespace", "", "namespace of the writer; all when unset")
	flags.IntVar(&o.debugPort, "debug-port", o.debugPort, "port of the components' DEBUG_ADDRESS")
	root.AddCommand(newStatusCommand(o), newWaitCommand(o), newExplainCommand(o))
	return root
}

// addFormat adds the flag for the form of a command's result.
func addFormat(cmd *cobra.Command, format *command.Format) {
	cmd.Flags().VarP(format, "output", "o", "form of the result")
}

// wantArgs limits the number of arguments.
func wantArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.RangeArgs(least, most)(cmd, args); err != nil {
			return usageError{fmt.Errorf("%w: %s", err, cmd.UseLine())}
		}
		return nil
	}
}
