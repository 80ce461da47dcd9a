package generic

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Command is "lab mutate".
func Command() *cobra.Command {
	var root string
	var atOnce int
	var also []string
	cmd := &cobra.Command{
		Use:   "mutate package",
		Short: "Make every small change to a package, and list those that its tests do not notice",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := Run(cmd.Context(), root, args[0], append(args, also...), atOnce, func(format string, args ...any) {
				fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
			})
			return err
		},
	}
	cmd.Flags().StringVar(&root, "root", ".", "root of the checkout")
	cmd.Flags().IntVar(&atOnce, "at-once", 2, "changes tried at the same time")
	cmd.Flags().StringSliceVar(&also, "also", nil, "packages whose tests count too")
	return cmd
}
