package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestListenerOnLoopbackRejectsReboundNames(t *testing.T) {
	inner := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for host, code := range map[string]int{
		"127.0.0.1:6060": 200, "localhost:6060": 200, "[::1]:6060": 200,
		"rebound.example:6060": 421, "localhost.evil.example": 421, "": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, "/statusz", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		checkHost(inner).ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("%q: %d, want %d", host, w.Code, code)
		}
	}
}
