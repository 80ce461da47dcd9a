package command

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// failureAnnotation is the key of what exit code 1 of a command means.
const failureAnnotation = "slicefeed.dev/failure"

// Failure returns what exit code 1 of a command means.
func Failure(cmd *cobra.Command) string {
	return cmp.Or(cmd.Annotations[failureAnnotation], "the command failed")
}

// setHelp makes --help print the examples of a command, its flags, its settings by group and its exit codes.
func setHelp(cmd *cobra.Command, all []settings.Field) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		writeUsage(cmd.OutOrStdout(), cmd, all)
		return nil
	})
}

func writeUsage(out io.Writer, cmd *cobra.Command, all []settings.Field) {
	fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "  %s [command]\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(out, "\nExamples:\n  %s\n", strings.ReplaceAll(cmd.Example, "\n", "\n  "))
	}
	writeCommands(out, cmd)
	writeFlags(out, cmd, all)
	fmt.Fprintf(out, "\nExit codes:\n  0  success\n  1  %s\n  2  invalid flags, arguments or settings\n", Failure(cmd))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\nUse \"%s [command] --help\" for more information about a command.\n", cmd.CommandPath())
	}
}

func writeCommands(out io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	fmt.Fprint(out, "\nAvailable Commands:\n")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			fmt.Fprintf(out, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
		}
	}
}

// writeFlags writes the flags: first those that are no settings or have no group, then each group of settings.
func writeFlags(out io.Writer, cmd *cobra.Command, all []settings.Field) {
	groupOf := map[string]string{} // of each setting's flag
	flags := map[string]*pflag.FlagSet{"": pflag.NewFlagSet("", pflag.ContinueOnError)}
	secrets := map[string]string{}
	var groups []string // in the order of the settings
	for i := range all {
		f := &all[i]
		if flags[f.Group] == nil {
			groups = append(groups, f.Group)
			flags[f.Group] = pflag.NewFlagSet("", pflag.ContinueOnError)
		}
		if f.Secret {
			secrets[f.Group] += fmt.Sprintf("      no flag, only [$%s]: %s\n", f.Env, f.Help)
		}
		groupOf[f.Flag] = f.Group
	}
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) { flags[groupOf[flag.Name]].AddFlag(flag) })
	fmt.Fprintf(out, "\nFlags:\n%s", flags[""].FlagUsages())
	for _, group := range groups {
		fmt.Fprintf(out, "\nSettings, %s:\n%s%s", group, flags[group].FlagUsages(), secrets[group])
	}
}
