package command

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// scripts write the completion script of each shell.
var scripts = map[string]func(root *cobra.Command, out io.Writer) error{
	"bash":       func(root *cobra.Command, out io.Writer) error { return root.GenBashCompletionV2(out, true) },
	"fish":       func(root *cobra.Command, out io.Writer) error { return root.GenFishCompletion(out, true) },
	"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
	"zsh":        (*cobra.Command).GenZshCompletion,
}

// newCompletion returns the command that prints a completion script.
func newCompletion(name string) *cobra.Command {
	shells := slices.Sorted(maps.Keys(scripts))
	return &cobra.Command{
		Use: "completion SHELL", Short: "Print a script that completes command lines in " + strings.Join(shells, ", "),
		Example: "source <(" + name + " completion bash)",
		Args:    checkArgs([]string{"SHELL"}), ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			script := scripts[args[0]]
			if script == nil {
				return settings.FlagError(fmt.Errorf("unknown shell %q, want one of %s", args[0], strings.Join(shells, ", ")))
			}
			return script(cmd.Root(), cmd.OutOrStdout())
		},
	}
}

// completeFlag makes shells suggest the values of a flag.
func completeFlag(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(fmt.Sprintf("command: %v", err)) // there is no such flag, which is a bug
	}
}
