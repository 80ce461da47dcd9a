// Package commandtest writes and checks the commands of a component in docs/reference/cli.md. It guarantees that
// the page lists each command with its arguments, its own flags and its help text. Only tests use it.
package commandtest

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// CheckDocs compares the commands of root with those in a Markdown file, between the lines
// <!-- cli:name --> and <!-- /cli:name -->, where name is that of the binary. With update it rewrites them.
func CheckDocs(file string, root *cobra.Command, update bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- cli:%s -->\n", root.Name()), fmt.Sprintf("<!-- /cli:%s -->", root.Name())
	before, rest, found := bytes.Cut(text, []byte(begin))
	current, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return fmt.Errorf("%s: the lines %q and %q are missing", file, begin, end)
	}
	commands := []byte("\n" + render(root) + "\n")
	switch {
	case bytes.Equal(current, commands):
		return nil
	case !update:
		return fmt.Errorf("%s: the commands of %s differ from the code; run: make generate", file, root.Name())
	default:
		return os.WriteFile(file, bytes.Join([][]byte{before, []byte(begin), commands, []byte(end), after}, nil), 0o644) //nolint:gosec // public documentation
	}
}

// render renders a table of the commands, and the flags of those that do not have the flags of serve.
func render(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("| command | what it does | flags |\n|---|---|---|\n")
	names := map[string][]string{} // of commands, by their flags
	var flags []string
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		which, own := "none", c.Flags().FlagUsages()
		switch {
		case c.Flags().Lookup("log-level") != nil:
			which = "the [settings](settings.md)"
		case own != "":
			which = "below"
			if names[own] == nil {
				flags = append(flags, own)
			}
			names[own] = append(names[own], "`"+c.Name()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Use, c.Short, which)
	}
	for _, own := range flags {
		fmt.Fprintf(&b, "\nFlags of %s:\n\n```text\n%s```\n", strings.Join(names[own], ", "), own)
	}
	return b.String()
}
