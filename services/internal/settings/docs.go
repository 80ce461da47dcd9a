package settings

import (
	"bytes"
	"fmt"
	"os"
)

// CheckDocs compares the table of cfg's settings with the one in a Markdown file, between the lines
// <!-- settings:name --> and <!-- /settings:name -->. With update it rewrites that table.
func CheckDocs(file, name string, cfg any, update bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- settings:%s -->\n", name), fmt.Sprintf("<!-- /settings:%s -->", name)
	before, rest, found := bytes.Cut(text, []byte(begin))
	current, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return fmt.Errorf("%s: the lines %q and %q are missing", file, begin, end)
	}
	table := []byte("\n" + RenderTable(cfg) + "\n")
	switch {
	case bytes.Equal(current, table):
		return nil
	case !update:
		return fmt.Errorf("%s: the settings of the %s differ from the code; run: make generate", file, name)
	default:
		return os.WriteFile(file, bytes.Join([][]byte{before, []byte(begin), table, []byte(end), after}, nil), 0o644) //nolint:gosec // public documentation
	}
}
