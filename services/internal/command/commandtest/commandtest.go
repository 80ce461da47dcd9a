// Package commandtest writes and checks the commands of a component in docs/reference/cli.md. It guarantees that
// the page lists each command with its arguments, its own flags and its help text. Only tests use it.
package commandtest

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/docsection"
)

// CheckDocs compares the commands of root with those in a Markdown file, between the lines
// <!-- cli:name --> and <!-- /cli:name -->, where name is that of the binary. With update it rewrites them.
func CheckDocs(file string, root *cobra.Command, update bool) error {
	return docsection.Check(file, "cli:"+root.Name(), update, func(string) string { return "\n" + render(root) + "\n" })
}

// render renders a table of the commands, and the flags of those that do not have the flags of serve.
func render(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("| command | what it does | exit code 1 | flags |\n|---|---|---|---|\n")
	names := map[string][]string{} // of commands, by their flags
	var flags []string
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		which, own := "none", c.Flags().FlagUsages()
		switch {
		case c.Flags().Lookup("log-level") != nil:
			which = "the [settings](settings.md)"
			if c.Flags().Lookup("output") != nil {
				which += ", [`-o`](output.md)"
			}
		case own != "":
			which = "below"
			if names[own] == nil {
				flags = append(flags, own)
			}
			names[own] = append(names[own], "`"+c.Name()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Use, c.Short, command.Failure(c), which)
	}
	for _, own := range flags {
		fmt.Fprintf(&b, "\nFlags of %s:\n\n```text\n%s```\n", strings.Join(names[own], ", "), own)
	}
	return b.String()
}

// CheckOutput compares the JSON that a command prints with its example in a Markdown file, between the lines
// <!-- output:name --> and <!-- /output:name -->. With update it rewrites it.
func CheckOutput(file, name, output string, update bool) error {
	return docsection.Check(file, "output:"+name, update, func(string) string { return "\n```json\n" + output + "```\n\n" })
}
