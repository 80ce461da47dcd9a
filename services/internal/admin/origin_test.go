package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestDebugListenerRejectsCrossOriginPages(t *testing.T) {
	inner := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		name     string
		loopback bool
		host     string
		header   map[string]string
		code     int
	}{
		{"no browser", true, "127.0.0.1:6060", nil, 200},
		{"kubectl port-forward", true, "localhost:6060", nil, 200},
		{"with IPv6", true, "[::1]:6060", nil, 200},
		{"a name rebound to loopback", true, "rebound.example:6060", nil, 421},
		{"a name that starts with localhost", true, "localhost.evil.example", nil, 421},
		{"no name", true, "", nil, 421},
		{"a name, on a listener that is not on loopback", false, "writer.debug.svc:6060", nil, 200},
		{"a person's own request", true, "localhost:6060", map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		{"a link on the same page", true, "localhost:6060", map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		{"a link on another site", true, "localhost:6060", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		{"a frame on another site", true, "localhost:6060", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		{"a script of another site", true, "localhost:6060", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403},
		{"an image on another site", true, "localhost:6060", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403},
		{"another port of this machine", true, "localhost:6060", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403},
		{"a script, on a listener that is not on loopback", false, "writer.debug.svc", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/statusz", http.NoBody)
			r.Host = c.host
			for key, value := range c.header {
				r.Header.Set(key, value)
			}
			w := httptest.NewRecorder()
			checkOrigin(inner, c.loopback).ServeHTTP(w, r)
			if w.Code != c.code {
				t.Errorf("%d, want %d", w.Code, c.code)
			}
		})
	}
}
