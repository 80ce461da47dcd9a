// Package statuspage is /statusz of the writer: one page for a person at night, with each Service,
// whether it is right, and why each of its endpoints is as it is. It promises to be whole in itself
// (no script, nothing from elsewhere), bounded whatever there is, and to show a stranger's words as
// words. It refuses to change anything, and to say what nobody knows.
package statuspage

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

// Model is what there is to show at a moment.
type Model struct {
	At      time.Time
	Version string
	Writer  string // which replica this is
	Leading bool
	Holder  string // who holds the Lease; empty: not known
	Dry     bool   // what is decided is never sent
	Asked   string // NAMESPACE/SERVICE, the only one that is shown; empty: all

	Services []endpoints.View
	Status   endpoints.Status
	Sources  []subscriber.Snapshot // by name
}

// What a page shows at most. Beyond that it says how much is left out.
const (
	maxRows      = 1000    // Services in the table
	maxAddresses = 100     // of a Service
	maxWitnesses = 4       // of an address
	maxGuards    = 20      // of a Service
	maxOpen      = 5       // Services that are unfolded
	maxText      = 512     // bytes of a text, 1,024 are the longest that there are
	maxDetails   = 4 << 20 // bytes of the Services' details
)

var (
	//go:embed page.css
	style string
	//go:embed page.html
	markup string
	pages  = template.Must(template.New("").Parse(markup))
)

// Render writes the page. It writes nothing else than what the model says, and the same each time.
func Render(w io.Writer, m Model) error {
	p := newPage(&m)
	var out bytes.Buffer
	if err := pages.ExecuteTemplate(&out, "head", p); err != nil {
		return err
	}
	shown, details := 0, 0
	for _, r := range p.ranked {
		var one bytes.Buffer
		if err := pages.ExecuteTemplate(&one, "service", m.service(r, shown)); err != nil {
			return err
		}
		if details += one.Len(); details > maxDetails {
			break
		}
		shown++
		out.Write(one.Bytes())
	}
	p.Folded = len(p.ranked) - shown
	if err := pages.ExecuteTemplate(&out, "foot", p); err != nil {
		return err
	}
	_, err := out.WriteTo(w)
	return err
}

// Config is what the page is made from.
type Config struct {
	Board   *endpoints.Board
	Sources func() []subscriber.Snapshot
	Leading func() bool
	Holder  func() string // who holds the Lease, as far as is known; nil: there is no Lease, and nothing is sent
	Version string
	Writer  string // which replica this is
	Logger  *slog.Logger
}

// Handler serves the page; ?service=NAMESPACE/SERVICE shows one Service alone.
func Handler(cfg Config) http.Handler {
	digest := sha256.Sum256([]byte(style))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := Model{
			At: time.Now(), Version: cfg.Version, Writer: cfg.Writer, Leading: cfg.Leading(), Dry: cfg.Holder == nil,
			Asked: r.URL.Query().Get("service"), Sources: cfg.Sources(),
		}
		slices.SortFunc(m.Sources, func(a, b subscriber.Snapshot) int { return cmp.Compare(a.Source, b.Source) })
		var asked []endpoints.Name
		if m.Asked != "" {
			namespace, service, _ := strings.Cut(m.Asked, "/")
			asked = []endpoints.Name{{Namespace: namespace, Service: service}}
		}
		m.Services, m.Status = cfg.Board.Look(endpoints.Select(asked))
		if !m.Dry {
			m.Holder = cfg.Holder()
		}
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", policy)
		h.Set("Content-Type", "text/html; charset=utf-8")
		if err := Render(w, m); err != nil {
			cfg.Logger.Info("status page not sent", "error", err) // whoever asked has gone, mostly
		}
	})
}
