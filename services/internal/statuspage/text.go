package statuspage

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Terminal describes the output for text.
type Terminal struct {
	Width int // columns, at least 32
	Color bool
}

// Write writes the page as text: each item in a line or two, followed by the details of expanded
// items.
func (t Terminal) Write(w io.Writer, p *Page) error {
	o := &printer{Terminal: t, labelWidth: labelWidth}
	o.Width = max(o.Width, 32)
	if o.Width < 60 {
		o.labelWidth = 6
	}
	o.writeText(0, bold, p.Component)
	o.writeText(0, faint, strings.TrimSpace(p.Instance+" "+p.Version)+", as of "+p.At.UTC().Format("2006-01-02 15:04:05 UTC"))
	o.writeBlank()
	o.writeLabeled(0, p.Summary.Severity, p.Summary.Text)
	for _, line := range p.Lines {
		o.writeText(o.labelWidth, severityStyle(line.Severity), line.Text)
	}
	if p.Filter != "" {
		o.writeText(o.labelWidth, plain, "Showing only "+p.Filter+".")
	}
	for i := range p.Sections {
		o.writeSection(&p.Sections[i])
	}
	if p.Filter == "" {
		o.writeBlank()
		o.writeText(0, faint, "Show one in full: "+p.Component+" status NAME")
	}
	_, err := io.WriteString(w, o.b.String())
	return err
}

// labelWidth is the width of the column of labels. The longest label has five letters.
const labelWidth = 7

// padSpace stands for a space that must survive line wrapping.
const padSpace = "\ue000"

type printer struct {
	Terminal

	labelWidth int
	b          strings.Builder
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

func severityStyle(severity Severity) string {
	return map[Severity]string{Error: red, Warning: yellow, OK: green}[severity]
}

func (o *printer) writeBlank() { o.b.WriteString("\n") }

// styled adds escape sequences to sanitized text.
func (o *printer) styled(style, text string) string {
	if !o.Color || style == plain || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// writeText wraps text and writes it with an indent.
func (o *printer) writeText(indent int, style, text string) {
	if text = display.Wrap(text, o.Width, indent); text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimPrefix(line, strings.Repeat(" ", indent)) // the first line has none
		o.b.WriteString(strings.Repeat(" ", indent) + o.styled(style, o.breakLine(line, indent)) + "\n")
	}
}

// breakLine breaks words that are longer than a line.
func (o *printer) breakLine(line string, indent int) string {
	room := max(o.Width-indent, 8)
	var b strings.Builder
	for utf8.RuneCountInString(line) > room {
		runes := []rune(line)
		b.WriteString(string(runes[:room]) + "\n" + strings.Repeat(" ", indent))
		line = string(runes[room:])
	}
	return b.String() + line
}

// writeLabeled writes text after the label of a severity.
func (o *printer) writeLabeled(indent int, severity Severity, text string) {
	label := severity.Label()
	var inner printer
	inner.Terminal, inner.labelWidth = o.Terminal, o.labelWidth
	inner.writeText(indent+o.labelWidth, plain, text)
	rest := strings.TrimPrefix(inner.b.String(), strings.Repeat(" ", indent+o.labelWidth))
	o.b.WriteString(strings.Repeat(" ", indent) + o.styled(severityStyle(severity), label) + strings.Repeat(" ", o.labelWidth-len(label)) + rest)
	if rest == "" {
		o.writeBlank()
	}
}

func (o *printer) writeSection(s *Section) {
	o.writeBlank()
	o.writeText(0, bold, strings.ToUpper(s.Title))
	for _, line := range s.Lines {
		o.writeText(0, severityStyle(line.Severity), line.Text)
	}
	if s.Table != nil {
		o.writeTable(0, s.Table)
	}
	o.writeItems(0, s.Items)
	o.writeText(0, faint, s.Omitted)
}

// writeItems writes items, with their names in a column if the width allows it.
func (o *printer) writeItems(indent int, all []Item) {
	nameWidth := 0
	for i := range all {
		nameWidth = max(nameWidth, utf8.RuneCountInString(display.Sanitize(all[i].Name)))
	}
	if nameWidth > 28 || indent+o.labelWidth+nameWidth > o.Width/2 {
		nameWidth = 0
	}
	for i := range all {
		o.writeItem(indent, nameWidth, &all[i])
	}
}

func (o *printer) writeItem(indent, nameWidth int, i *Item) {
	name, summary, detail := display.Sanitize(i.Name), display.Sanitize(i.Summary.Text), display.Sanitize(i.Detail)
	name += strings.Repeat(padSpace, max(nameWidth-utf8.RuneCountInString(name), 0)+1)
	var inner printer
	inner.Terminal, inner.labelWidth = o.Terminal, o.labelWidth
	inner.writeLabeled(indent, i.Summary.Severity, name+" "+summary)
	line := strings.ReplaceAll(inner.b.String(), padSpace, " ")
	if indent+o.labelWidth+utf8.RuneCountInString(name+summary+detail)+4 <= o.Width {
		if detail != "" {
			line = strings.TrimSuffix(line, "\n") + "  " + o.styled(faint, detail) + "\n"
		}
		detail = ""
	}
	o.b.WriteString(line)
	o.writeText(indent+o.labelWidth, faint, detail)
	if !i.Expanded {
		return
	}
	details := indent + o.labelWidth
	for _, line := range i.Lines {
		o.writeText(details, severityStyle(line.Severity), line.Text)
	}
	for _, line := range i.Diff {
		lineIndent := len(line) - len(strings.TrimLeft(line, " "))
		o.writeText(details+lineIndent, map[string]string{"added": green, "removed": red, "changed": yellow, "reason": faint}[diffClass(line)], line)
	}
	for _, f := range i.Facts {
		if len(f.Values) == 1 {
			o.writeText(details, severityStyle(f.Values[0].Severity), f.Name+": "+f.Values[0].Text)
			continue
		}
		o.writeText(details, plain, f.Name+":")
		for _, v := range f.Values {
			o.writeText(details+2, severityStyle(v.Severity), v.Text)
		}
	}
	if i.Table != nil {
		o.writeTable(details, i.Table)
	}
	o.writeItems(min(details, 12), i.Items)
	o.writeText(details, faint, i.Omitted)
}

// writeTable writes columns and wraps the last one. If they do not fit, it writes each row by itself.
func (o *printer) writeTable(indent int, t *Table) {
	widths := make([]int, len(t.Columns))
	for n, c := range t.Columns {
		widths[n] = utf8.RuneCountInString(c)
	}
	for _, row := range t.Rows {
		for n := range row {
			widths[n] = max(widths[n], utf8.RuneCountInString(display.Sanitize(row[n].Text)))
		}
	}
	lastColumn := indent
	for _, w := range widths[:len(widths)-1] {
		lastColumn += w + 2
	}
	if o.Width-lastColumn < min(24, widths[len(widths)-1]) {
		o.writeStacked(indent, t)
		return
	}
	headings := make([]Line, len(t.Columns))
	for n, c := range t.Columns {
		headings[n] = Line{Text: c}
	}
	for n, row := range slices.Concat([][]Line{headings}, t.Rows) {
		style := func(cell Line) string {
			if n == 0 {
				return faint
			}
			return severityStyle(cell.Severity)
		}
		var line strings.Builder
		line.WriteString(strings.Repeat(" ", indent))
		for column, cell := range row[:len(row)-1] {
			text := display.Sanitize(cell.Text)
			line.WriteString(o.styled(style(cell), text) + strings.Repeat(" ", widths[column]-utf8.RuneCountInString(text)+2))
		}
		last := row[len(row)-1]
		var inner printer
		inner.Terminal = o.Terminal
		inner.writeText(lastColumn, style(last), last.Text)
		line.WriteString(strings.TrimSpace(inner.b.String()))
		o.b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func (o *printer) writeStacked(indent int, t *Table) {
	for _, row := range t.Rows {
		for n, cell := range row {
			text := cell.Text
			if text == "" {
				continue
			}
			if n == 0 {
				o.writeText(indent, bold, text)
				continue
			}
			o.writeText(indent+2, severityStyle(cell.Severity), t.Columns[n]+": "+text)
		}
	}
}
