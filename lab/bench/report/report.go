package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slicefeed/slicefeed/lab/figures"
)

// Report is the whole bench: the newest of each section.
type Report struct {
	GoalsMet bool              `json:"goals_met"` // all of them, in all sections, none of which failed
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Sections []*Section        `json:"sections"`
}

// Load reads what Save kept. A file that is not there is an empty report.
func Load(file string) (*Report, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &Report{}, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// Save keeps the report as JSON, and its page with the plots in a directory beside it.
func (r *Report) Save(file, page string) error {
	if err := figures.Save(file, r); err != nil {
		return err
	}
	for name, content := range r.Files(filepath.Base(strings.TrimSuffix(page, ".md"))) {
		path := filepath.Join(filepath.Dir(page), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Take puts the sections in place of those of their names, in the order of names, and
// remembers the figures that they replace if they were measured on the same machine.
func (r *Report) Take(names []string, machine string, versions map[string]string, sections []*Section) {
	for _, s := range sections {
		i := slices.IndexFunc(r.Sections, func(was *Section) bool { return was.Name == s.Name })
		if i < 0 {
			r.Sections = append(r.Sections, s)
			continue
		}
		if r.Machine == machine {
			s.compare(r.Sections[i])
		}
		r.Sections[i] = s
	}
	slices.SortFunc(r.Sections, func(a, b *Section) int { return slices.Index(names, a.Name) - slices.Index(names, b.Name) })
	r.Sections = slices.DeleteFunc(r.Sections, func(s *Section) bool { return !slices.Contains(names, s.Name) })
	r.Machine, r.Versions = machine, versions
	r.GoalsMet = len(r.Sections) == len(names)
	for _, s := range r.Sections {
		r.GoalsMet = r.GoalsMet && s.met()
	}
}

func (s *Section) compare(was *Section) {
	for i := range s.Goals {
		for _, before := range was.Goals {
			if before.Text == s.Goals[i].Text {
				s.Goals[i].Before = &before.Figure
			}
		}
	}
}

func (s *Section) met() bool {
	return s.Error == "" && !slices.ContainsFunc(s.Goals, func(g Goal) bool { return !g.Met() })
}

// String is the section as a terminal shows it.
func (s *Section) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)\n%s\n", s.Title, s.Took.Round(time.Second), s.Settings)
	if s.Error != "" {
		fmt.Fprintf(&b, "\nNOT measured: %s\n", s.Error)
	}
	for _, t := range s.Tables {
		fmt.Fprintf(&b, "\n%s\n", t.Title)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, row := range slices.Concat([][]string{t.Columns}, t.Rows) {
			fmt.Fprintf(w, "  %s\n", strings.Join(row, "\t"))
		}
		_ = w.Flush()
	}
	if len(s.Goals) > 0 {
		fmt.Fprintln(&b)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, g := range s.Goals {
			fmt.Fprintf(w, "  %s\t%s\tat most %s\t%s\n", g.Text, g.figure(), number(g.AtMost, g.Unit), g.word())
		}
		_ = w.Flush()
	}
	return b.String()
}

// Goals is the table of all goals as a terminal shows it.
func (r *Report) Goals() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range r.Sections {
		if s.Error != "" {
			fmt.Fprintf(w, "%s\t\t\t\tNOT measured\n", s.Name)
		}
		for _, g := range s.Goals {
			fmt.Fprintf(w, "%s\t%s\t%s\tat most %s\t%s\n", s.Name, g.Text, g.figure(), number(g.AtMost, g.Unit), g.word())
		}
	}
	_ = w.Flush()
	return b.String()
}

func (g Goal) word() string {
	if g.Met() {
		return "met"
	}
	return "NOT met"
}

func (g Goal) figure() string {
	text := number(g.Figure, g.Unit)
	if g.Noise > 0 {
		text += " ± " + number(g.Noise, "")
	}
	return text
}

// number has three digits that count, and no more than the figure has.
func number(f float64, unit string) string {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	switch {
	case f == float64(int64(f)):
	case f >= 100 || f <= -100:
		text = strconv.FormatFloat(f, 'f', 0, 64)
	case f >= 10 || f <= -10:
		text = strconv.FormatFloat(f, 'f', 1, 64)
	case f >= 0.1 || f <= -0.1:
		text = strconv.FormatFloat(f, 'f', 2, 64)
	default:
		text = strconv.FormatFloat(f, 'g', 2, 64)
	}
	if unit == "" {
		return text
	}
	return text + " " + unit
}
