package report

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Save writes the page of the section and its plots into a directory, in place of those of the run before.
func (s *Section) Save(dir string) error {
	for name, content := range s.files() {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files renders the page and its plots, by name.
func (s *Section) files() map[string][]byte {
	files := map[string][]byte{}
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!-- Written by `make bench ONLY=%s`. Do not edit. -->\n\n# %s\n\nMeasured %s in %s, %s.\n",
		s.Name, s.Title, s.Time.UTC().Format("2006-01-02 15:04"), s.Took.Round(time.Second), s.Origin)
	s.pageGoals(&b)
	for _, p := range s.Parts {
		if p.Title != "" {
			fmt.Fprintf(&b, "\n## %s\n", p.Title)
		}
		for _, text := range append([]string{p.Setup}, p.Notes...) {
			fmt.Fprintf(&b, "\n%s\n", text)
		}
		for _, t := range p.Tables {
			fmt.Fprintf(&b, "\n%s\n\n", t.Title)
			writeRow(&b, t.Columns)
			writeRow(&b, slices.Repeat([]string{"---"}, len(t.Columns)))
			for _, cells := range t.Rows {
				writeRow(&b, cells)
			}
		}
		for _, plot := range p.Plots {
			files[plot.Name+".svg"] = plot.svg()
			fmt.Fprintf(&b, "\n![%s](%s.svg)\n", plot.Title, plot.Name)
		}
	}
	files[s.Name+".md"] = b.Bytes()
	return files
}

func (s *Section) pageGoals(b *bytes.Buffer) {
	goals := s.goals()
	if len(goals) == 0 {
		return
	}
	fmt.Fprint(b, "\n`±` is how far a figure moved within the run.\n\n")
	writeRow(b, []string{"goal", "measured", "at most", ""})
	writeRow(b, slices.Repeat([]string{"---"}, 4))
	for _, g := range goals {
		verdict := g.verdict()
		if !g.Met() {
			verdict = "**" + verdict + "**"
		}
		writeRow(b, []string{g.Text, g.figure(), number(g.AtMost, g.Unit), verdict})
	}
	for _, g := range goals {
		if g.Remark != "" && !g.Met() {
			fmt.Fprintf(b, "\n**%s** (%s): %s\n", g.Text, g.verdict(), g.Remark)
		}
	}
}

func writeRow(b *bytes.Buffer, cells []string) {
	escaped := make([]string, len(cells))
	for i, cell := range cells {
		escaped[i] = cmp.Or(strings.ReplaceAll(cell, "|", "\\|"), " ")
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(escaped, " | "))
}
