package report

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Files renders the page and its plots, by name. The page is name + ".md"; plots are in a
// directory of that name.
func (r *Report) Files(name string) map[string][]byte {
	files := map[string][]byte{}
	var b bytes.Buffer
	fmt.Fprint(&b, "<!-- Rendered from lab/bench/results/latest.json by `make bench`: edit the sections in lab/bench instead. -->\n\n# Performance\n\n")
	fmt.Fprint(&b, "What `make bench` measured, at most 25 minutes on two cores. A time by itself says more about the machine\n"+
		"than about the code: each is told as a ratio to a baseline of the same run, measured in turn with it.\n"+
		"`make bench ONLY=propagation` measures one section and replaces it here, `QUICK=1` measures less and keeps nothing.\n\n")
	fmt.Fprintf(&b, "Measured on %s%s.\n", r.Machine, versions(r.Versions))
	r.goals(&b)
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\nMeasured %s at %s, in %s: `make bench ONLY=%s`.\n",
			s.Title, s.Settings, s.Time.UTC().Format("2006-01-02 15:04"), s.Version, s.Took.Round(time.Second), s.Name)
		if s.Error != "" {
			fmt.Fprintf(&b, "\n**Not measured:** %s\n", s.Error)
		}
		for _, note := range s.Notes {
			fmt.Fprintf(&b, "\n%s\n", note)
		}
		for _, t := range s.Tables {
			fmt.Fprintf(&b, "\n%s\n\n", t.Title)
			row(&b, t.Columns)
			row(&b, slices.Repeat([]string{"---"}, len(t.Columns)))
			for _, cells := range t.Rows {
				row(&b, cells)
			}
		}
		for _, p := range s.Plots {
			file := name + "/" + p.Name + ".svg"
			files[file] = p.svg()
			fmt.Fprintf(&b, "\n![%s](%s)\n", p.Title, file)
		}
		for _, g := range s.Goals {
			if g.Remark != "" && !g.Met() {
				fmt.Fprintf(&b, "\n**%s** (%s): %s\n", g.Text, g.word(), g.Remark)
			}
		}
	}
	files[name+".md"] = b.Bytes()
	return files
}

func (r *Report) goals(b *bytes.Buffer) {
	fmt.Fprint(b, "\n## Goals\n\n`±` is how far a figure moved within its own run, *before* is that of the run before on the same machine.\n\n")
	row(b, []string{"", "goal", "measured", "at most", "before", ""})
	row(b, slices.Repeat([]string{"---"}, 6))
	for _, s := range r.Sections {
		for _, g := range s.Goals {
			before, word := "", g.word()
			if g.Before != nil {
				before = number(*g.Before, g.Unit)
			}
			if !g.Met() {
				word = "**" + word + "**"
			}
			row(b, []string{s.Name, g.Text, g.figure(), number(g.AtMost, g.Unit), before, word})
		}
	}
}

func row(b *bytes.Buffer, cells []string) {
	escaped := make([]string, len(cells))
	for i, cell := range cells {
		escaped[i] = cmp.Or(strings.ReplaceAll(cell, "|", "\\|"), " ")
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(escaped, " | "))
}

func versions(of map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&b, ", %s %s", name, of[name])
	}
	return b.String()
}
