package settings

import (
	"bytes"
	"fmt"
	"os"
)

// CheckDocs reports whether a Markdown file has the Table of cfg between the lines
// <!-- settings:name --> and <!-- /settings:name -->; with update it puts it there.
func CheckDocs(file, name string, cfg any, update bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- settings:%s -->\n", name), fmt.Sprintf("<!-- /settings:%s -->", name)
	before, rest, found := bytes.Cut(text, []byte(begin))
	there, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return fmt.Errorf("%s: the lines %q and %q are missing", file, begin, end)
	}
	table := []byte("\n" + RenderTable(cfg) + "\n")
	switch {
	case bytes.Equal(there, table):
		return nil
	case !update:
		return fmt.Errorf("%s: the settings of the %s are not as the code has them; run: make generate", file, name)
	default:
		return os.WriteFile(file, bytes.Join([][]byte{before, []byte(begin), table, []byte(end), after}, nil), 0o644) //nolint:gosec // it is for everybody to read
	}
}
