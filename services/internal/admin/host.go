package admin

import (
	"net"
	"net/http"
	"strings"
)

// checkHost protects a listener on loopback from pages of other sites in a browser on the same machine:
// it only accepts addresses and localhost as Host, because anyone can create a name that resolves to
// 127.0.0.1 (DNS rebinding).
func checkHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocalHost(r.Host) {
			http.Error(w, "use localhost or an address as the host name", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
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
