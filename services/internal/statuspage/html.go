package statuspage

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"net/url"
	"strings"
)

var (
	//go:embed page.css
	style string
	//go:embed page.html
	markup string

	pages = template.Must(template.New("page").Funcs(template.FuncMap{
		"only": func(name string) string { return "?only=" + url.QueryEscape(name) },
		"id":   func(title string) string { return strings.ToLower(strings.ReplaceAll(title, " ", "-")) },
		"icon": func(g Grade) template.URL { return icons[g] },
		"kind": kind,
		"from": func(row []Line, n int) []Line { return row[min(n, len(row)):] },
	}).Parse(markup))

	// policy lets nothing in but our own style sheet and the icon.
	policy = func() string {
		digest := sha256.Sum256([]byte(style))
		return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) +
			"'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	}()

	// icons are dots in the tab of a browser: a page left open there says how it was.
	icons = map[Grade]template.URL{None: dot("888"), Fine: dot("1e7d3a"), Look: dot("b26a00"), Wrong: dot("c5221f")}
)

func dot(colour string) template.URL {
	return template.URL("data:image/svg+xml," + url.PathEscape( //nolint:gosec // it is ours, and nobody else's text is in it
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="#`+colour+`"/></svg>`))
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

// HTML writes the page for a browser.
func HTML(w io.Writer, p *Page) error {
	return pages.Execute(w, struct {
		*Page

		Style template.CSS
	}{p, template.CSS(style)}) //nolint:gosec // it is ours, and nobody else's text is in it
}
