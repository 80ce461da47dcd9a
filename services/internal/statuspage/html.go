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
	styleSheet string

	// contentPolicy allows only the page's own style sheet and icon.
	contentPolicy = func() string {
		digest := sha256.Sum256([]byte(styleSheet))
		return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) +
			"'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	}()

	// icons are dots for a browser's tab. They show the severity when the page was loaded.
	icons = map[Severity]string{None: dotIcon("888"), OK: dotIcon("1e7d3a"), Warning: dotIcon("b26a00"), Error: dotIcon("c5221f")}
)

func dotIcon(color string) string {
	return "data:image/svg+xml," + url.PathEscape(
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="#`+color+`"/></svg>`)
}

// WriteHTML writes the page for a browser.
func WriteHTML(w io.Writer, p *Page) error {
	var m markup
	m.writePage(p)
	_, err := w.Write(m.Bytes())
	return err
}

// markup writes HTML. It replaces html/template, which finds methods by name: the linker then keeps
// every method of every type, and those of the Kubernetes API and the cloud SDK made the binaries
// larger by half, in memory too.
type markup struct{ bytes.Buffer }

// writef writes trusted markup and replaces each %s by a text, escaped for use in an element or a
// quoted attribute. All untrusted text must be written this way.
func (m *markup) writef(format string, texts ...string) {
	for _, text := range texts {
		before, after, _ := strings.Cut(format, "%s")
		m.WriteString(before)
		m.WriteString(html.EscapeString(text))
		format = after
	}
	m.WriteString(format)
}

// openTag opens an element with the class of a severity.
func (m *markup) openTag(tag string, severity Severity) {
	m.writef("<" + tag)
	if severity != None {
		m.writef(` class="%s"`, string(severity))
	}
	m.writef(">")
}

func (m *markup) writePage(p *Page) {
	m.writef(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>`)
	if label := p.Summary.Severity.Label(); label != "" {
		m.writef("%s · ", label)
	}
	m.writef("%s", p.Component)
	if p.Filter != "" {
		m.writef(" · %s", p.Filter)
	}
	m.writef("</title>\n<link rel=\"icon\" href=\"%s\">\n<style>", icons[p.Summary.Severity])
	m.WriteString(styleSheet)
	m.writef("</style>\n</head>\n<body>\n")
	m.writeHeader(p)
	m.writef("<main>\n")
	for i := range p.Sections {
		m.writeSection(&p.Sections[i])
	}
	m.writef("</main>\n</body>\n</html>\n")
}

func (m *markup) writeHeader(p *Page) {
	m.writef("<header>\n<h1>%s</h1>\n<p class=\"faint\">", p.Component)
	if p.Instance != "" {
		m.writef("<code>%s</code> · ", p.Instance)
	}
	m.writef("%s · as of %s</p>\n", p.Version, p.At.UTC().Format("2006-01-02 15:04:05 UTC"))
	m.writef(`<p class="summary %s">`, string(p.Summary.Severity))
	m.writeLabel(p.Summary.Severity)
	m.writef("%s</p>\n", p.Summary.Text)
	m.writeLines(p.Lines)
	if p.Filter != "" {
		m.writef("<p>Showing only <code>%s</code>. <a href=\"?\">Show all</a></p>\n", p.Filter)
	}
	m.writef(`<nav aria-label="Sections"><ul>`)
	for i := range p.Sections {
		m.writef(`<li><a href="#%s">%s</a></li>`, sectionAnchor(p.Sections[i].Title), p.Sections[i].Title)
	}
	m.writef("</ul></nav>\n</header>\n")
}

func sectionAnchor(title string) string { return strings.ToLower(strings.ReplaceAll(title, " ", "-")) }

func (m *markup) writeSection(s *Section) {
	m.writef("<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">%s</h2>\n", sectionAnchor(s.Title), sectionAnchor(s.Title), s.Title)
	m.writeLines(s.Lines)
	m.writeTable(s.Table)
	m.writeItems(s.Items, s.Omitted)
	m.writef("</section>\n")
}

func (m *markup) writeLabel(severity Severity) {
	if label := severity.Label(); label != "" {
		m.writef(`<span class="label %s">%s</span> `, string(severity), label)
	}
}

func (m *markup) writeLines(all []Line) {
	for _, line := range all {
		m.writeLine(line)
		m.writef("\n")
	}
}

func (m *markup) writeLine(l Line) {
	m.openTag("p", l.Severity)
	m.writef("%s</p>", l.Text)
}

func (m *markup) writeTable(t *Table) {
	if t == nil {
		return
	}
	m.writef("<table>\n<thead><tr>")
	for _, column := range t.Columns {
		m.writef(`<th scope="col">%s</th>`, column)
	}
	m.writef("</tr></thead>\n<tbody>\n")
	for _, row := range t.Rows {
		m.writef("<tr>")
		for n, cell := range row {
			tag := "th"
			if n == 0 {
				m.openTag(`th scope="row"`, cell.Severity)
			} else {
				tag = "td"
				m.writef(`<td data-of="%s"`, t.Columns[n])
				if cell.Severity != None {
					m.writef(` class="%s"`, string(cell.Severity))
				}
				m.writef(">")
			}
			m.writef("%s</"+tag+">", cell.Text)
		}
		m.writef("</tr>\n")
	}
	m.writef("</tbody>\n</table>\n")
}

func (m *markup) writeItems(all []Item, leftOut string) {
	for i := range all {
		m.writeItem(&all[i])
		m.writef("\n")
	}
	if leftOut != "" {
		m.writef("<p class=\"omitted\">%s</p>\n", leftOut)
	}
}

func (m *markup) writeItem(i *Item) {
	if !i.HasDetails() {
		m.writef(`<div class="item plain %s">`, string(i.Summary.Severity))
		m.writeItemLine(i, i.Filter)
		m.writef("</div>")
		return
	}
	m.writef(`<details class="item %s"`, string(i.Summary.Severity))
	if i.Expanded {
		m.writef(" open")
	}
	m.writef(">\n<summary>")
	m.writeItemLine(i, "")
	m.writef("</summary>\n<div class=\"details\">\n")
	m.writeLines(i.Lines)
	if len(i.Diff) > 0 {
		m.writef(`<ul class="diff">`)
		for _, line := range i.Diff {
			m.writef(`<li class="%s">%s</li>`, diffClass(line), line)
		}
		m.writef("</ul>\n")
	}
	m.writeFacts(i.Facts)
	m.writeTable(i.Table)
	m.writeItems(i.Items, i.Omitted)
	if i.Filter != "" {
		m.writef("<p class=\"filter\"><a href=\"%s\">Show only this</a></p>\n", filterURL(i.Filter))
	}
	m.writef("</div>\n</details>")
}

// writeItemLine writes the line of an item. Its name links to a page with only the item, unless filter is empty.
func (m *markup) writeItemLine(i *Item, filter string) {
	m.writeLabel(i.Summary.Severity)
	if filter == "" {
		m.writef("<h3>%s</h3>", i.Name)
	} else {
		m.writef(`<h3><a href="%s">%s</a></h3>`, filterURL(filter), i.Name)
	}
	m.writef(` <span class="summary %s">%s</span>`, string(i.Summary.Severity), i.Summary.Text)
	if i.Detail != "" {
		m.writef(` <span class="detail">%s</span>`, i.Detail)
	}
}

func filterURL(name string) string { return "?filter=" + url.QueryEscape(name) }

func (m *markup) writeFacts(all []Fact) {
	if len(all) == 0 {
		return
	}
	m.writef("<dl>")
	for _, fact := range all {
		m.writef("<dt>%s</dt><dd>", fact.Name)
		for _, value := range fact.Values {
			m.writeLine(value)
		}
		m.writef("</dd>\n")
	}
	m.writef("</dl>\n")
}

// diffClass returns the CSS class of a line of a diff.
func diffClass(line string) string {
	switch line[:min(1, len(line))] {
	case "+":
		return "added"
	case "-":
		return "removed"
	case "~":
		return "changed"
	default:
		return "reason"
	}
}
