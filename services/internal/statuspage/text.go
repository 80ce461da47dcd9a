package statuspage

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Terminal is where text goes.
type Terminal struct {
	Width  int // columns, at least 32
	Colour bool
}

// Write writes the page for people at a terminal: each thing in a line or two, and details of
// those that a browser would show unfolded.
func (t Terminal) Write(w io.Writer, p *Page) error {
	o := &printer{Terminal: t, margin: margin}
	o.Width = max(o.Width, 32)
	if o.Width < 60 {
		o.margin = 6
	}
	o.put(0, bold, p.Half)
	o.put(0, faint, strings.TrimSpace(p.Instance+" "+p.Version)+", as of "+p.At.UTC().Format("2006-01-02 15:04:05 UTC"))
	o.blank()
	o.marked(0, p.Is.Grade, p.Is.Text)
	for _, line := range p.Lines {
		o.put(o.margin, styleOf(line.Grade), line.Text)
	}
	if p.Asked != "" {
		o.put(o.margin, plain, "Only "+p.Asked+" is shown.")
	}
	for i := range p.Sections {
		o.section(&p.Sections[i])
	}
	if p.Asked == "" {
		o.blank()
		o.put(0, faint, "More of one alone: "+p.Half+" status NAME")
	}
	_, err := io.WriteString(w, o.b.String())
	return err
}

// margin is where what follows a mark begins: the longest mark has five letters.
const margin = 7

// pad is a space that keeps its place when text is broken into lines.
const pad = "\ue000"

type printer struct {
	Terminal

	margin int
	b      strings.Builder
}

// The looks of text, as a terminal is told them.
const (
	plain  = ""
	bold   = "1"
	faint  = "2"
	red    = "1;31"
	yellow = "33"
	green  = "32"
)

func styleOf(g Grade) string {
	return map[Grade]string{Wrong: red, Look: yellow, Fine: green}[g]
}

func (o *printer) blank() { o.b.WriteString("\n") }

// look makes text look so. It is sane already.
func (o *printer) look(how, text string) string {
	if !o.Colour || how == plain || text == "" {
		return text
	}
	return "\x1b[" + how + "m" + text + "\x1b[0m"
}

// put writes text in lines that fit, each after an indent.
func (o *printer) put(indent int, how, text string) {
	if text = display.Wrap(text, o.Width, indent); text == "" {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimPrefix(line, strings.Repeat(" ", indent)) // of the first line there is none
		o.b.WriteString(strings.Repeat(" ", indent) + o.look(how, o.cut(line, indent)) + "\n")
	}
}

// cut breaks a word that is longer than a line.
func (o *printer) cut(line string, indent int) string {
	room := max(o.Width-indent, 8)
	var b strings.Builder
	for utf8.RuneCountInString(line) > room {
		runes := []rune(line)
		b.WriteString(string(runes[:room]) + "\n" + strings.Repeat(" ", indent))
		line = string(runes[room:])
	}
	return b.String() + line
}

// marked writes text after the mark of a grade.
func (o *printer) marked(indent int, g Grade, text string) {
	mark := strings.ToUpper(g.Mark())
	var inner printer
	inner.Terminal, inner.margin = o.Terminal, o.margin
	inner.put(indent+o.margin, plain, text)
	rest := strings.TrimPrefix(inner.b.String(), strings.Repeat(" ", indent+o.margin))
	o.b.WriteString(strings.Repeat(" ", indent) + o.look(styleOf(g), mark) + strings.Repeat(" ", o.margin-len(mark)) + rest)
	if rest == "" {
		o.blank()
	}
}

func (o *printer) section(s *Section) {
	o.blank()
	o.put(0, bold, strings.ToUpper(s.Title))
	for _, line := range s.Lines {
		o.put(0, styleOf(line.Grade), line.Text)
	}
	if s.Table != nil {
		o.table(0, s.Table)
	}
	o.items(0, s.Items)
	o.put(0, faint, s.LeftOut)
}

// items writes items, their names in a column where that leaves room.
func (o *printer) items(indent int, all []Item) {
	names := 0
	for i := range all {
		names = max(names, utf8.RuneCountInString(display.Sanitize(all[i].Name)))
	}
	if names > 28 || indent+o.margin+names > o.Width/2 {
		names = 0
	}
	for i := range all {
		o.item(indent, names, &all[i])
	}
}

func (o *printer) item(indent, names int, i *Item) {
	name, is, also := display.Sanitize(i.Name), display.Sanitize(i.Is.Text), display.Sanitize(i.Also)
	name += strings.Repeat(pad, max(names-utf8.RuneCountInString(name), 0)+1)
	var inner printer
	inner.Terminal, inner.margin = o.Terminal, o.margin
	inner.marked(indent, i.Is.Grade, name+" "+is)
	line := strings.ReplaceAll(inner.b.String(), pad, " ")
	if indent+o.margin+utf8.RuneCountInString(name+is+also)+4 <= o.Width {
		if also != "" {
			line = strings.TrimSuffix(line, "\n") + "  " + o.look(faint, also) + "\n"
		}
		also = ""
	}
	o.b.WriteString(line)
	o.put(indent+o.margin, faint, also)
	if !i.Open {
		return
	}
	in := indent + o.margin
	for _, line := range i.Lines {
		o.put(in, styleOf(line.Grade), line.Text)
	}
	for _, line := range i.Diff {
		deeper := len(line) - len(strings.TrimLeft(line, " "))
		o.put(in+deeper, map[string]string{"came": green, "went": red, "differs": yellow, "because": faint}[kind(line)], line)
	}
	for _, f := range i.Facts {
		if len(f.Values) == 1 {
			o.put(in, styleOf(f.Values[0].Grade), f.Name+": "+f.Values[0].Text)
			continue
		}
		o.put(in, plain, f.Name+":")
		for _, v := range f.Values {
			o.put(in+2, styleOf(v.Grade), v.Text)
		}
	}
	if i.Table != nil {
		o.table(in, i.Table)
	}
	o.items(min(in, 12), i.Items)
	o.put(in, faint, i.LeftOut)
}

// table writes columns, the last of them broken into lines; where that does not fit, each row by itself.
func (o *printer) table(indent int, t *Table) {
	widths := make([]int, len(t.Columns))
	for n, c := range t.Columns {
		widths[n] = utf8.RuneCountInString(c)
	}
	for _, row := range t.Rows {
		for n := range row {
			widths[n] = max(widths[n], utf8.RuneCountInString(display.Sanitize(row[n].Text)))
		}
	}
	before := indent
	for _, w := range widths[:len(widths)-1] {
		before += w + 2
	}
	if o.Width-before < min(24, widths[len(widths)-1]) {
		o.stacked(indent, t)
		return
	}
	heads := make([]Line, len(t.Columns))
	for n, c := range t.Columns {
		heads[n] = Line{Text: c}
	}
	for n, row := range slices.Concat([][]Line{heads}, t.Rows) {
		how := func(cell Line) string {
			if n == 0 {
				return faint
			}
			return styleOf(cell.Grade)
		}
		var line strings.Builder
		line.WriteString(strings.Repeat(" ", indent))
		for at, cell := range row[:len(row)-1] {
			text := display.Sanitize(cell.Text)
			line.WriteString(o.look(how(cell), text) + strings.Repeat(" ", widths[at]-utf8.RuneCountInString(text)+2))
		}
		last := row[len(row)-1]
		var inner printer
		inner.Terminal = o.Terminal
		inner.put(before, how(last), last.Text)
		line.WriteString(strings.TrimSpace(inner.b.String()))
		o.b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func (o *printer) stacked(indent int, t *Table) {
	for _, row := range t.Rows {
		for n, cell := range row {
			text := cell.Text
			if text == "" {
				continue
			}
			if n == 0 {
				o.put(indent, bold, text)
				continue
			}
			o.put(indent+2, styleOf(cell.Grade), t.Columns[n]+": "+text)
		}
	}
}
