package statuspage

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"net/url"
	"reflect"
	"strings"
)

var (
	//go:embed page.css
	styleSheet string

	//go:embed page.html
	pageSource string

	pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{
		"anchor":     sectionAnchor,
		"diffClass":  diffClass,
		"icon":       dotIcon,
		"styleSheet": func() template.CSS { return template.CSS(styleSheet) }, //nolint:gosec // our own
	}).Parse(pageSource))

	// contentPolicy allows only the page's own style sheet and icon.
	contentPolicy = func() string {
		digest := sha256.Sum256([]byte(styleSheet))
		return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) +
			"'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	}()
)

// WriteHTML writes the page for a browser.
func WriteHTML(w io.Writer, p *Page) error {
	sanitize(reflect.ValueOf(p))
	return pageTemplate.ExecuteTemplate(w, "page", p)
}

// dotIcon returns a dot for a browser's tab. It shows the severity when the page was loaded.
func dotIcon(s Severity) template.URL {
	color := map[Severity]string{None: "888", OK: "1e7d3a", Warning: "b26a00", Error: "c5221f"}[s]
	return template.URL("data:image/svg+xml," + url.PathEscape( //nolint:gosec // without text from outside
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="#`+color+`"/></svg>`))
}

func sectionAnchor(title string) string { return strings.ToLower(strings.ReplaceAll(title, " ", "-")) }

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
