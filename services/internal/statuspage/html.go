package statuspage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html"
	"io"
	"net/url"
	"strings"
)

var (
	//go:embed page.css
	style string

	// policy lets nothing in but our own style sheet and the icon.
	policy = func() string {
		digest := sha256.Sum256([]byte(style))
		return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) +
			"'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	}()

	// icons are dots in the tab of a browser: a page left open there says how it was.
	icons = map[Grade]string{None: dot("888"), Fine: dot("1e7d3a"), Look: dot("b26a00"), Wrong: dot("c5221f")}
)

func dot(colour string) string {
	return "data:image/svg+xml," + url.PathEscape(
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="#`+colour+`"/></svg>`)
}

// HTML writes the page for a browser.
func HTML(w io.Writer, p *Page) error {
	var m markup
	m.page(p)
	_, err := w.Write(m.Bytes())
	return err
}

// markup is written by hand. Rejected: html/template, which finds methods by name, so that the
// linker has to keep every method of every type of a program: the Kubernetes API's and the
// cloud SDK's made the binaries half as large again, in memory too.
type markup struct{ bytes.Buffer }

// add writes markup of ours. For each %s a text comes in, anybody's: it is escaped so that it
// stays text in an element and in a quoted attribute. There is no other way in for one.
func (m *markup) add(ours string, texts ...string) {
	for _, text := range texts {
		before, after, _ := strings.Cut(ours, "%s")
		m.WriteString(before)
		m.WriteString(html.EscapeString(text))
		ours = after
	}
	m.WriteString(ours)
}

// begin opens an element of a grade.
func (m *markup) begin(tag string, g Grade) {
	m.add("<" + tag)
	if g != None {
		m.add(` class="%s"`, string(g))
	}
	m.add(">")
}

func (m *markup) page(p *Page) {
	m.add(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>`)
	if mark := p.Is.Grade.Mark(); mark != "" {
		m.add("%s · ", mark)
	}
	m.add("%s", p.Half)
	if p.Asked != "" {
		m.add(" · %s", p.Asked)
	}
	m.add("</title>\n<link rel=\"icon\" href=\"%s\">\n<style>", icons[p.Is.Grade])
	m.WriteString(style)
	m.add("</style>\n</head>\n<body>\n")
	m.header(p)
	m.add("<main>\n")
	for i := range p.Sections {
		m.section(&p.Sections[i])
	}
	m.add("</main>\n</body>\n</html>\n")
}

func (m *markup) header(p *Page) {
	m.add("<header>\n<h1>%s</h1>\n<p class=\"faint\">", p.Half)
	if p.Instance != "" {
		m.add("<code>%s</code> · ", p.Instance)
	}
	m.add("%s · as of %s</p>\n", p.Version, p.At.UTC().Format("2006-01-02 15:04:05 UTC"))
	m.add(`<p class="verdict %s">`, string(p.Is.Grade))
	m.mark(p.Is.Grade)
	m.add("%s</p>\n", p.Is.Text)
	m.lines(p.Lines)
	if p.Asked != "" {
		m.add("<p>Only <code>%s</code> is shown. <a href=\"?\">Show all</a></p>\n", p.Asked)
	}
	m.add(`<nav aria-label="Sections"><ul>`)
	for i := range p.Sections {
		m.add(`<li><a href="#%s">%s</a></li>`, anchor(p.Sections[i].Title), p.Sections[i].Title)
	}
	m.add("</ul></nav>\n</header>\n")
}

func anchor(title string) string { return strings.ToLower(strings.ReplaceAll(title, " ", "-")) }

func (m *markup) section(s *Section) {
	m.add("<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">%s</h2>\n", anchor(s.Title), anchor(s.Title), s.Title)
	m.lines(s.Lines)
	m.table(s.Table)
	m.items(s.Items, s.LeftOut)
	m.add("</section>\n")
}

func (m *markup) mark(g Grade) {
	if mark := g.Mark(); mark != "" {
		m.add(`<span class="mark %s">%s</span> `, string(g), mark)
	}
}

func (m *markup) lines(all []Line) {
	for _, line := range all {
		m.line(line)
		m.add("\n")
	}
}

func (m *markup) line(l Line) {
	m.begin("p", l.Grade)
	m.add("%s</p>", l.Text)
}

func (m *markup) table(t *Table) {
	if t == nil {
		return
	}
	m.add("<table>\n<thead><tr>")
	for _, column := range t.Columns {
		m.add(`<th scope="col">%s</th>`, column)
	}
	m.add("</tr></thead>\n<tbody>\n")
	for _, row := range t.Rows {
		m.add("<tr>")
		for n, cell := range row {
			tag := "th"
			if n == 0 {
				m.begin(`th scope="row"`, cell.Grade)
			} else {
				tag = "td"
				m.add(`<td data-of="%s"`, t.Columns[n])
				if cell.Grade != None {
					m.add(` class="%s"`, string(cell.Grade))
				}
				m.add(">")
			}
			m.add("%s</"+tag+">", cell.Text)
		}
		m.add("</tr>\n")
	}
	m.add("</tbody>\n</table>\n")
}

func (m *markup) items(all []Item, leftOut string) {
	for i := range all {
		m.item(&all[i])
		m.add("\n")
	}
	if leftOut != "" {
		m.add("<p class=\"left-out\">%s</p>\n", leftOut)
	}
}

func (m *markup) item(i *Item) {
	if !i.Folds() {
		m.add(`<div class="item plain %s">`, string(i.Is.Grade))
		m.head(i, i.Ask)
		m.add("</div>")
		return
	}
	m.add(`<details class="item %s"`, string(i.Is.Grade))
	if i.Open {
		m.add(" open")
	}
	m.add(">\n<summary>")
	m.head(i, "")
	m.add("</summary>\n<div class=\"inside\">\n")
	m.lines(i.Lines)
	if len(i.Diff) > 0 {
		m.add(`<ul class="diff">`)
		for _, line := range i.Diff {
			m.add(`<li class="%s">%s</li>`, kind(line), line)
		}
		m.add("</ul>\n")
	}
	m.facts(i.Facts)
	m.table(i.Table)
	m.items(i.Items, i.LeftOut)
	if i.Ask != "" {
		m.add("<p class=\"only\"><a href=\"%s\">Only this one</a></p>\n", only(i.Ask))
	}
	m.add("</div>\n</details>")
}

// head is an item in a line. Its name leads to a page of it alone, unless ask is empty.
func (m *markup) head(i *Item, ask string) {
	m.mark(i.Is.Grade)
	if ask == "" {
		m.add("<h3>%s</h3>", i.Name)
	} else {
		m.add(`<h3><a href="%s">%s</a></h3>`, only(ask), i.Name)
	}
	m.add(` <span class="is %s">%s</span>`, string(i.Is.Grade), i.Is.Text)
	if i.Also != "" {
		m.add(` <span class="also">%s</span>`, i.Also)
	}
}

func only(name string) string { return "?only=" + url.QueryEscape(name) }

func (m *markup) facts(all []Fact) {
	if len(all) == 0 {
		return
	}
	m.add("<dl>")
	for _, fact := range all {
		m.add("<dt>%s</dt><dd>", fact.Name)
		for _, value := range fact.Values {
			m.line(value)
		}
		m.add("</dd>\n")
	}
	m.add("</dl>\n")
}

// kind is the class of a line of a diff.
func kind(line string) string {
	switch line[:min(1, len(line))] {
	case "+":
		return "came"
	case "-":
		return "went"
	case "~":
		return "differs"
	default:
		return "because"
	}
}
