package command

import (
	"cmp"
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

//go:embed usage.tmpl
var usage string

// failureAnnotation is the key of what exit code 1 of a command means.
const failureAnnotation = "slicefeed.dev/failure"

// Failure returns what exit code 1 of a command means.
func Failure(cmd *cobra.Command) string {
	return cmp.Or(cmd.Annotations[failureAnnotation], "the command failed")
}

// setHelp makes --help print the examples of a command, its flags, its settings by group and its exit codes.
func setHelp(cmd *cobra.Command, all []settings.Field) {
	help := template.Must(template.New("").Funcs(template.FuncMap{
		"failure": Failure,
		"flags":   func(cmd *cobra.Command) []*flagGroup { return groupFlags(cmd, all) },
		"indent":  func(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") },
	}).Parse(usage))
	cmd.SetUsageFunc(func(cmd *cobra.Command) error { return help.Execute(cmd.OutOrStdout(), cmd) })
}

// flagGroup is a part of a command's flags.
type flagGroup struct {
	Title   string
	flags   *pflag.FlagSet
	secrets string
}

// Usages describes the flags, and the settings that have none.
func (g *flagGroup) Usages() string { return g.flags.FlagUsages() + g.secrets }

// groupFlags returns the flags: first those that are no settings or have no group, then each group of settings.
func groupFlags(cmd *cobra.Command, all []settings.Field) []*flagGroup {
	groups := []*flagGroup{{Title: "Flags", flags: new(pflag.FlagSet)}}
	byName, byFlag := map[string]*flagGroup{"": groups[0]}, map[string]*flagGroup{}
	for i := range all {
		f := &all[i]
		if byName[f.Group] == nil {
			byName[f.Group] = &flagGroup{Title: "Settings, " + f.Group, flags: new(pflag.FlagSet)}
			groups = append(groups, byName[f.Group])
		}
		if byFlag[f.Flag] = byName[f.Group]; f.Secret {
			byFlag[f.Flag].secrets += fmt.Sprintf("      no flag, only [$%s]: %s\n", f.Env, f.Help)
		}
	}
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) { cmp.Or(byFlag[flag.Name], groups[0]).flags.AddFlag(flag) })
	return groups
}
