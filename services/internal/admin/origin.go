package admin

import (
	"net"
	"net/http"
	"strings"
)

// checkOrigin protects a listener from pages of other sites in a browser on the same machine. On loopback
// it only accepts addresses and localhost as Host, because anyone can create a name that resolves to
// 127.0.0.1 (DNS rebinding). On every listener it rejects requests that such a page makes itself, but not
// a link that a person follows.
func checkOrigin(h http.Handler, loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case loopback && !isLocalHost(r.Host):
			http.Error(w, "use localhost or an address as the host name", http.StatusMisdirectedRequest)
		case isCrossOrigin(r.Header):
			http.Error(w, "cross-origin requests are not allowed", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// isLocalHost reports whether a Host header is an address or localhost.
func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return net.ParseIP(host) != nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isCrossOrigin reports whether a page of another site made the request, by the browser's Fetch Metadata
// headers.
func isCrossOrigin(h http.Header) bool {
	switch h.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document"
}
