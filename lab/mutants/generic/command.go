package generic

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// Command is "lab mutate".
func Command() *cobra.Command {
	var cfg Config
	var only string
	cmd := &cobra.Command{
		Use:   "mutate package",
		Short: "Make every small change to a package, and list those that its tests do not notice",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Package = args[0]
			if len(cfg.Tests) == 0 {
				cfg.Tests = args
			}
			if only != "" {
				text, err := os.ReadFile(only)
				if err != nil {
					return err
				}
				cfg.Only = string(text)
			}
			cfg.Tell = func(format string, args ...any) { fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...) }
			_, err := Run(cmd.Context(), cfg)
			return err
		},
	}
	cmd.Flags().StringVar(&cfg.Root, "root", ".", "root of the checkout")
	cmd.Flags().IntVar(&cfg.AtOnce, "at-once", 2, "changes tried at the same time")
	cmd.Flags().StringSliceVar(&cfg.Tests, "tests", nil, "packages whose tests count, each with :TestName for that one alone; default: the package's own")
	cmd.Flags().StringVar(&only, "only", "", "a file with what an earlier run printed: only these survivors are tried")
	return cmd
}
