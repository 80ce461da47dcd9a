package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/session"
)

func execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec [--] command [argument…]",
		Short: "Run a command where the demo that was left up (make demo KEEP=1) can be reached",
		Long: "Run a command in the namespaces of the demo that was left up (make demo KEEP=1). kubectl is\n" +
			"that of the control planes, with a context for each of them.",
		Example: "  lab exec kubectl --context consuming get endpointslices -A\n" +
			"  lab exec curl -s http://10.0.0.21:30080",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cache, err := controlplane.CacheDir()
			if err != nil {
				return err
			}
			state, err := session.Load(cache)
			if err != nil {
				return err
			}
			return netns.Exec(state.PID, state.Environ(os.Environ()), args...)
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after the command's name are the command's
	return cmd
}
