package statuspage

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Handler serves a page: to a browser as HTML, and as JSON to whoever asks for that alone. With
// ?only=NAME it shows one thing by itself.
func Handler(page func(at time.Time, asked string) Page, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := page(time.Now(), r.URL.Query().Get("only"))
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
		if wantsJSON(r.Header.Get("Accept")) {
			h.Set("Content-Type", "application/json")
			err = json.NewEncoder(&body).Encode(p)
		} else {
			h.Set("Content-Type", "text/html; charset=utf-8")
			err = WriteHTML(&body, &p)
		}
		if err != nil {
			log.Error("status page not made", "error", err)
			http.Error(w, "the status page could not be made: the log says why", http.StatusInternalServerError)
			return
		}
		if _, err := body.WriteTo(w); err != nil {
			log.Info("status page not sent", "error", err) // whoever asked has gone
		}
	})
}

// wantsJSON reports whether JSON is asked for and HTML is not: a browser takes anything.
func wantsJSON(accept string) bool {
	accept = strings.ToLower(accept)
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}
