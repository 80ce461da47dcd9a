package house

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	tableRow   = regexp.MustCompile(`(?m)^\t(\w+): +\{(\w+(?:, \w+)*)\},`)
	pictureRow = regexp.MustCompile(`<text class="name" x="24"[^>]*>([^<]+)</text>`)
	cell       = regexp.MustCompile(`<rect class="(\w+)"[^>]*/><text class="mid"[^>]*>([^<]+)</text>`)
)

// tableRows are the names that readers see for the rows of the table in verdict.
var tableRows = map[string]string{
	"Ready": "READY", "Draining": "DRAINING", "NotReady": "NOT_READY", "unlisted": "not listed",
	"Unknown": "unknown state", "suppressed": "suppressed", "disallowed": "not allowed",
}

// decisionTable reads the table from the source of verdict: the actions of each row by its name in pages.
func decisionTable(t *testing.T) map[string][]string {
	t.Helper()
	table := map[string][]string{}
	for _, m := range tableRow.FindAllStringSubmatch(read(t, filepath.Join(root, "services/writer/verdict/table.go")), -1) {
		if name := tableRows[m[1]]; name != "" {
			table[name] = strings.Split(strings.ReplaceAll(m[2], "asIs", "as is"), ", ")
		}
	}
	if len(table) != len(tableRows) {
		t.Fatalf("got %d rows of the table in verdict, want %d", len(table), len(tableRows))
	}
	return table
}

func TestPictureOfTheDecisionTableFitsTheCode(t *testing.T) {
	want := decisionTable(t)
	rows := strings.Split(read(t, filepath.Join(root, "docs/images/decision-table.svg")), "\n")
	found := 0
	for i, line := range rows {
		name := pictureRow.FindStringSubmatch(line)
		if name == nil || i+5 >= len(rows) {
			continue
		}
		found++
		var got []string
		for _, next := range rows[i+1 : i+6] {
			m := cell.FindStringSubmatch(next)
			if m == nil || strings.ReplaceAll(m[1], "asIs", "as is") != m[2] {
				t.Fatalf("row %q: the color of %q is that of another action", name[1], next)
			}
			got = append(got, m[2])
		}
		if !slices.Equal(got, want[name[1]]) {
			t.Errorf("row %q of the picture: got %q, want %q", name[1], got, want[name[1]])
		}
	}
	if found != len(want) {
		t.Errorf("the picture has %d rows, want %d", found, len(want))
	}
}

func TestPageOfTheDecisionTableFitsTheCode(t *testing.T) {
	want := decisionTable(t)
	page := read(t, filepath.Join(root, "docs/design/decision-rules.md"))
	_, rest, _ := strings.Cut(page, "<!-- table:begin -->")
	table, _, _ := strings.Cut(rest, "<!-- table:end -->")
	found := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		if actions := want[cells[0]]; actions != nil {
			found++
			if !slices.Equal(cells[1:], actions) {
				t.Errorf("row %q of the page: got %q, want %q", cells[0], cells[1:], actions)
			}
		}
	}
	if found != len(want) {
		t.Errorf("the page has %d rows of the table, want %d", found, len(want))
	}
}

func TestPicturesAreReadableOnDarkBackgrounds(t *testing.T) {
	pictures, err := filepath.Glob(filepath.Join(root, "docs/images/*.svg"))
	if err != nil || len(pictures) < 4 {
		t.Fatalf("got %d pictures (%v), want at least 4", len(pictures), err)
	}
	for _, path := range pictures {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		decoder := xml.NewDecoder(strings.NewReader(string(text)))
		for err == nil {
			_, err = decoder.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
		for _, part := range []string{`<rect class="bg"`, "prefers-color-scheme: dark", "<title", "<desc"} {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s: has no %s", filepath.Base(path), part)
			}
		}
	}
}
