package statuspage

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// Handler serves a page as HTML, or as JSON if the client accepts JSON but not HTML, or if the query has
// format=json. The query filter=NAME limits the page to one name.
func Handler(page func(now time.Time, filter string) Page, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := page(time.Now(), r.URL.Query().Get("filter"))
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Vary", "Accept")
		var body bytes.Buffer
		var err error
		if wantsJSON(r.Header.Get("Accept")) || r.URL.Query().Get("format") == "json" {
			h.Set("Content-Type", "application/json")
			sanitize(reflect.ValueOf(&p))
			err = json.NewEncoder(&body).Encode(p)
		} else {
			h.Set("Content-Type", "text/html; charset=utf-8")
			err = WriteHTML(&body, &p)
		}
		if err != nil {
			log.Error("status page rendering failed", "error", err)
			http.Error(w, "status page rendering failed; see the log", http.StatusInternalServerError)
			return
		}
		if _, err := body.WriteTo(w); err != nil {
			log.Debug("status page not sent", "error", err) // the client has disconnected
		}
	})
}

// wantsJSON reports whether a client accepts JSON but not HTML. Browsers accept anything.
func wantsJSON(accept string) bool {
	accept = strings.ToLower(accept)
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}
