package statuspage

import (
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Terminal describes the output for text.
type Terminal struct {
	Width int // columns, at least 32
	Color bool
}

// Write writes the page as text: each item in a line or two, followed by the details of expanded
// items.
func (t Terminal) Write(w io.Writer, p *Page) error {
	sanitize(reflect.ValueOf(p))
	o := &textWriter{Terminal: Terminal{max(t.Width, 32), t.Color}}
	o.writeText(0, bold, p.Component)
	o.writeText(0, faint, strings.TrimSpace(p.Instance+" "+p.Version)+", as of "+p.At.UTC().Format("2006-01-02 15:04:05 UTC"))
	o.writeText(0, plain, "")
	o.writeLabeled(0, p.Summary)
	o.writeLines(labelWidth, p.Lines)
	if p.Filter != "" {
		o.writeText(labelWidth, plain, "Showing only "+p.Filter+".")
	}
	for i := range p.Sections {
		o.writeSection(&p.Sections[i])
	}
	if p.Filter == "" {
		o.writeText(0, plain, "")
		o.writeText(0, faint, "Show one in full: "+p.Component+" status NAME")
	}
	_, err := io.WriteString(w, o.b.String())
	return err
}

// labelWidth is the width of the column of labels. The longest label has five letters.
const labelWidth = 7

type textWriter struct {
	Terminal

	b strings.Builder
}

// Styles of text, as ANSI escape parameters.
const (
	plain  = ""
	bold   = "1"
	faint  = "2"
	red    = "1;31"
	yellow = "33"
	green  = "32"
)

var (
	severityStyles = map[Severity]string{Error: red, Warning: yellow, OK: green}
	diffStyles     = map[string]string{"added": green, "removed": red, "changed": yellow, "reason": faint}
)

func (o *textWriter) styled(style, text string) string {
	if !o.Color || style == plain || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// writeText writes text with an indent, in as many lines as it takes.
func (o *textWriter) writeText(indent int, style, text string) {
	o.writeWrapped(strings.Repeat(" ", indent), indent, style, text)
}

// writeLabeled writes text behind the label of its severity.
func (o *textWriter) writeLabeled(indent int, line Line) {
	label := line.Severity.Label()
	prefix := strings.Repeat(" ", indent) + o.styled(severityStyles[line.Severity], label) + strings.Repeat(" ", labelWidth-len(label))
	o.writeWrapped(prefix, indent+labelWidth, plain, line.Text)
}

// writeWrapped writes text after a prefix, which takes the columns of the indent. Further lines have the indent.
func (o *textWriter) writeWrapped(prefix string, indent int, style, text string) {
	for first := true; first || text != ""; first = false {
		line := text
		if width := max(o.Width-indent, 8); utf8.RuneCountInString(text) > width {
			line = string([]rune(text)[:width+1])
			if end := strings.LastIndexByte(line, ' '); end > 0 {
				line = line[:end]
			} else {
				line = string([]rune(text)[:width])
			}
		}
		o.b.WriteString(strings.TrimRight(prefix+o.styled(style, strings.TrimRight(line, " ")), " ") + "\n")
		text, prefix = strings.TrimLeft(text[len(line):], " "), strings.Repeat(" ", indent)
	}
}

func (o *textWriter) writeLines(indent int, all []Line) {
	for _, line := range all {
		o.writeText(indent, severityStyles[line.Severity], line.Text)
	}
}

func (o *textWriter) writeSection(s *Section) {
	o.writeText(0, plain, "")
	o.writeText(0, bold, strings.ToUpper(s.Title))
	o.writeLines(0, s.Lines)
	if s.Table != nil {
		o.writeTable(s.Table)
	}
	o.writeItems(0, s.Items, s.Omitted)
}

// writeItems writes items, with their names in a column if the width allows it.
func (o *textWriter) writeItems(indent int, all []Item, omitted string) {
	nameWidth := 0
	for i := range all {
		nameWidth = max(nameWidth, utf8.RuneCountInString(all[i].Name))
	}
	if nameWidth > 28 || indent+labelWidth+nameWidth > o.Width/2 {
		nameWidth = 0
	}
	for i := range all {
		o.writeItem(indent, nameWidth, &all[i])
	}
	if omitted != "" {
		o.writeText(indent, faint, omitted)
	}
}

func (o *textWriter) writeItem(indent, nameWidth int, i *Item) {
	padding := strings.Repeat(" ", max(nameWidth-utf8.RuneCountInString(i.Name), 0))
	line, details := Line{i.Summary.Severity, i.Name + padding + "  " + i.Summary.Text}, indent+labelWidth
	switch {
	case i.Detail == "":
		o.writeLabeled(indent, line)
	case details+utf8.RuneCountInString(line.Text+i.Detail)+2 <= o.Width:
		line.Text += "  " + i.Detail
		o.writeLabeled(indent, line)
	default:
		o.writeLabeled(indent, line)
		o.writeText(details, faint, i.Detail)
	}
	if !i.Expanded {
		return
	}
	o.writeLines(details, i.Lines)
	for _, line := range i.Diff {
		text := strings.TrimLeft(line, " ")
		o.writeText(details+len(line)-len(text), diffStyles[diffClass(line)], text)
	}
	for _, f := range i.Facts {
		if len(f.Values) == 1 {
			o.writeText(details, severityStyles[f.Values[0].Severity], f.Name+": "+f.Values[0].Text)
			continue
		}
		o.writeText(details, plain, f.Name+":")
		o.writeLines(details+2, f.Values)
	}
	o.writeItems(min(details, 2*labelWidth), i.Items, i.Omitted)
}

// writeTable writes columns. A row has the color of its most severe cell.
func (o *textWriter) writeTable(t *Table) {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	writeRow := func(cells []string) { io.WriteString(columns, strings.Join(cells, "\t")+"\n") } //nolint:errcheck // to memory
	writeRow(t.Columns)
	styles := []string{faint}
	for _, row := range t.Rows {
		severity, cells := None, []string(nil)
		for _, cell := range row {
			severity, cells = MoreSevere(severity, cell.Severity), append(cells, cell.Text)
		}
		styles = append(styles, severityStyles[severity])
		writeRow(cells)
	}
	columns.Flush() //nolint:errcheck // to memory
	for n, row := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		o.writeWrapped("", 2, styles[n], row)
	}
}
