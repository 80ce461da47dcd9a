package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChecksAndWritesOneSection(t *testing.T) {
	const page = "above\n<!-- table -->\nold\n<!-- /table -->\nbelow\n"
	for _, tt := range []struct {
		name, page, section, generated string
		update                         bool
		err, want                      string
	}{
		{name: "equal", page: page, section: "table", generated: "old\n", want: page},
		{name: "different", page: page, section: "table", generated: "new\n", err: "differs from the code", want: page},
		{name: "written", page: page, section: "table", generated: "new\n", update: true, want: strings.Replace(page, "old", "new", 1)},
		{name: "missing", page: page, section: "list", update: true, err: "are missing", want: page},
		{name: "not closed", page: "<!-- table -->\nold\n", section: "table", update: true, err: "are missing", want: "<!-- table -->\nold\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "page.md")
			if err := os.WriteFile(file, []byte(tt.page), 0o600); err != nil {
				t.Fatal(err)
			}
			*Update = tt.update
			defer func() { *Update = false }()
			err := CheckSection(file, tt.section, func(string) string { return tt.generated })
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}
