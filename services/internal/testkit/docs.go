// Package testkit is what the tests of several packages need: it writes and checks the generated sections of pages, plays
// scripts, reads metrics, and has valid configurations. It guarantees that the text around a section stays as it is, and that the page of the commands has each
// with its arguments, its own flags and its help text.
package testkit

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/services/internal/command"
)

// Update is whether tests write what is generated instead of comparing it.
var Update = flag.Bool("update", false, "write what is generated")

// CheckSection compares a section of a page with what the code generates. The section is between
// the lines <!-- name --> and <!-- /name -->. generate gets its current text, of which it may keep parts.
func CheckSection(file, name string, generate func(current string) string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- %s -->\n", name), fmt.Sprintf("<!-- /%s -->", name)
	before, rest, found := strings.Cut(string(page), begin)
	current, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s: the lines %q and %q are missing", file, begin, end)
	}
	want := generate(current)
	switch {
	case current == want:
		return nil
	case !*Update:
		return fmt.Errorf("%s: the section %s differs from the code; run: make generate", file, name)
	}
	//nolint:gosec // G306: a page in the repository, world-readable like the others
	return os.WriteFile(file, []byte(before+begin+want+end+after), 0o644)
}

// CheckCommands compares the commands of root with those in a Markdown file, between the lines
// <!-- cli:name --> and <!-- /cli:name -->, where name is that of the binary.
func CheckCommands(file string, root *cobra.Command) error {
	return CheckSection(file, "cli:"+root.Name(), func(string) string { return "\n" + renderCommands(root) + "\n" })
}

// renderCommands renders a table of the commands, and the flags of those that do not have the flags of serve.
func renderCommands(root *cobra.Command) string {
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
// <!-- output:name --> and <!-- /output:name -->.
func CheckOutput(file, name, output string) error {
	return CheckSection(file, "output:"+name, func(string) string { return "\n```json\n" + output + "```\n\n" })
}
