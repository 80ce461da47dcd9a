package report

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	htmltemplate "html/template"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"

	"golang.org/x/term"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/command"
)

var (
	//go:embed page.css
	styleSheet string

	//go:embed parts.tmpl
	parts string // of both templates

	//go:embed page.html
	pageSource string

	//go:embed text.tmpl
	textSource string

	pageTemplate = htmltemplate.Must(htmltemplate.New("").Funcs(funcs).Funcs(htmltemplate.FuncMap{
		"diffClass":  diffClass,
		"filter":     filterOf,
		"icon":       dotIcon,
		"styleSheet": func() htmltemplate.CSS { return htmltemplate.CSS(styleSheet) }, //nolint:gosec // our own
	}).Parse(parts + pageSource))

	textTemplate = template.Must(template.New("").Funcs(funcs).Parse(parts + textSource))

	// contentPolicy allows only the page's own style sheet and icon.
	contentPolicy = func() string {
		digest := sha256.Sum256([]byte(styleSheet))
		return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) +
			"'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	}()
)

// Handler serves a report as HTML; as JSON or text with ?format=json or ?format=text; and as JSON if the client accepts
// JSON but not HTML. ?filter= and ?page_token= are those of a GetReportRequest, with which it calls get.
func Handler[R Report](get func(context.Context, *reportv1.GetReportRequest) (R, error), log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, query := w.Header(), r.URL.Query()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Vary", "Accept")
		report, err := get(r.Context(), &reportv1.GetReportRequest{Filter: query.Get("filter"), PageToken: query.Get("page_token")})
		if status.Code(err) == codes.InvalidArgument {
			http.Error(w, status.Convert(err).Message(), http.StatusBadRequest)
			return
		}
		var body bytes.Buffer
		if err == nil {
			format := query.Get("format")
			switch accept := r.Header.Get("Accept"); {
			case format == "text":
				h.Set("Content-Type", "text/plain; charset=utf-8")
				err = Write(&body, report)
			case format == "json" || strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html"):
				h.Set("Content-Type", "application/json")
				err = WriteAs(&body, command.JSON, report)
			default:
				h.Set("Content-Type", "text/html; charset=utf-8")
				err = pageTemplate.ExecuteTemplate(&body, "page", newView(report))
			}
		}
		if err != nil {
			log.Error("report failed", "error", err)
			http.Error(w, "report failed; see the log", http.StatusInternalServerError)
			return
		}
		if _, err := body.WriteTo(w); err != nil {
			log.Debug("report not sent", "error", err) // the client has disconnected
		}
	})
}

// WriteAs writes a report in a format.
func WriteAs(out io.Writer, format command.Format, r Report) error {
	if format.IsTable() {
		return Write(out, r)
	}
	encoded, err := JSON{r}.MarshalJSON()
	if err != nil {
		return err
	}
	return format.Write(out, json.RawMessage(encoded))
}

// Write writes a report as text, in colors if out is a terminal.
func Write(out io.Writer, r Report) error {
	var b bytes.Buffer
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if err := textTemplate.ExecuteTemplate(columns, "text", newView(r)); err != nil {
		return err
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	text := trailingSpace.ReplaceAllString(b.String(), "")
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		for labels, color := range colors {
			text = labels.ReplaceAllString(text, "\x1b["+color+"m$0\x1b[0m")
		}
	}
	_, err := io.WriteString(out, text)
	return err
}

// WritePlan writes the planned writes of a Service as text.
func WritePlan(out io.Writer, s *writerv1.ServiceReport) error {
	return textTemplate.ExecuteTemplate(out, "plan", s)
}

var trailingSpace = regexp.MustCompile(`(?m) +$`)

// colors are the ANSI colors of labels, and of the titles of sections.
var colors = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?m)^ *ERROR\b`): "1;31", regexp.MustCompile(`(?m)^ *WARN\b`): "33",
	regexp.MustCompile(`(?m)^ *OK\b`): "32", regexp.MustCompile(`(?m)^[A-Z][A-Z ]+$`): "1",
}

// dotIcon returns a dot for a browser's tab. It shows the level when the page was loaded.
func dotIcon(l reportv1.Level) htmltemplate.URL {
	color := map[string]string{"OK": "1e7d3a", "NOTE": "1e7d3a", "WARN": "b26a00", "ERROR": "c5221f"}[label(l)]
	return htmltemplate.URL("data:image/svg+xml," + url.PathEscape( //nolint:gosec // without text from outside
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="#`+color+`"/></svg>`))
}

// diffClass returns the class of a line of a diff.
func diffClass(line string) string {
	return map[string]string{"+": "added", "-": "removed", "~": "changed"}[line[:min(1, len(line))]]
}

// filterOf returns the filter that shows the object of a problem, such as "Service web/shop, source blue", or nothing.
func filterOf(object string) string {
	words := strings.FieldsFunc(object, func(r rune) bool { return r == ' ' || r == ',' })
	if len(words) > 1 && slices.Contains([]string{"address", "node", "Service"}, words[0]) {
		return words[1]
	}
	return ""
}
