package admin

import (
	"net"
	"net/http"
	"strings"
)

// checkOrigin keeps the pages of other sites out of what is on loopback: a browser on the same machine runs
// them, and sends requests for them. A name that leads to 127.0.0.1 is anyone's to make (DNS
// rebinding), so on loopback only its own names are answered to. What a page of another site asks
// for by itself is refused everywhere; a link that a person follows is not.
func checkOrigin(h http.Handler, loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case loopback && !isLocalHost(r.Host):
			http.Error(w, "this listener answers to localhost and to addresses, not to other names", http.StatusMisdirectedRequest)
		case isCrossOrigin(r.Header):
			http.Error(w, "this listener does not answer to the pages of other sites", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// isLocalHost reports whether a Host is an address, or localhost.
func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return net.ParseIP(host) != nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isCrossOrigin reports whether a browser says that the request is for a page of another site.
func isCrossOrigin(h http.Header) bool {
	switch h.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document"
}
