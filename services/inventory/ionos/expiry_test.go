package ionos

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tokenExpiringAt is a token in the format of IONOS that expires then.
func tokenExpiringAt(at time.Time) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"typ":"JWT","kid":"7a","alg":"RS256"}`)) + "." +
		part(fmt.Appendf(nil, `{"iss":"ionoscloud","iat":1,"client":"USER","exp":%d}`, at.Unix())) + "." + part([]byte("signature"))
}

func TestLogsTokenExpiryDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		file := filepath.Join(t.TempDir(), "token")
		begin := time.Now()
		day := func() int { return int(time.Since(begin) / (24 * time.Hour)) }
		token := tokenExpiringAt(begin.Add(30 * 24 * time.Hour))
		writeFile(t, file, []byte(token))
		c := newOfflineClient(
			t,
			Config{TokenFile: file, Log: slog.New(slog.NewTextHandler(&log, nil))},
			serveFixed(serversJSON(""), plainLANJSON),
		)

		logged := make(map[int][]string) // messages by day
		days := func(n int) {
			for range n * 8 { // each three hours
				log.Reset()
				if _, err := c.List(t.Context()); err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(log.String()) {
					for _, text := range []string{"within four weeks", "within three days", "token expired"} {
						if strings.Contains(line, text) {
							logged[day()] = append(logged[day()], text)
						}
					}
					if strings.Contains(line, token) || strings.Contains(line, strings.Split(token, ".")[1]) {
						t.Fatalf("the token is in the log: %s", line)
					}
					if !strings.Contains(line, "2000-01-31") || !strings.Contains(line, file) {
						t.Errorf("date or advice missing: %s", line)
					}
				}
				time.Sleep(3 * time.Hour)
			}
		}
		days(32)
		want := map[int][]string{}
		for d := 2; d < 27; d++ {
			want[d] = []string{"within four weeks"}
		}
		for d := 27; d < 30; d++ {
			want[d] = []string{"within three days"}
		}
		want[30], want[31] = []string{"token expired"}, []string{"token expired"}
		if diff := cmp.Diff(want, logged); diff != "" {
			t.Error(diff)
		}

		clear(logged)
		writeFile(t, file, []byte(tokenExpiringAt(begin.Add(365*24*time.Hour)))) // rotated
		if days(5); len(logged) != 0 {
			t.Errorf("logged for a new token: %v", logged)
		}
	})
}

func TestTokenExpiryReadsCurrentToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	c := newOfflineClient(t, Config{TokenFile: file}, nil)
	if _, _, err := c.TokenExpiry(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a missing file: %v", err)
	}
	want := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	writeFile(t, file, []byte(tokenExpiringAt(want)+"\n"))
	if at, known, err := c.TokenExpiry(); err != nil || !known || !at.Equal(want) {
		t.Errorf("got %v, %t, %v", at, known, err)
	}
	writeFile(t, file, []byte("opaque"))
	if at, known, err := c.TokenExpiry(); err != nil || known || !at.IsZero() {
		t.Errorf("got %v, %t, %v", at, known, err)
	}
}

func TestTokenRotatesWithoutRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, []byte("old"))
	valid := "old"
	c := newOfflineClient(t, Config{TokenFile: file}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+valid {
			respond(w, 401, `{"httpStatus":401,"messages":[{"errorCode":"315","message":"Unauthorized"}]}`)
			return
		}
		valid = "new" // from the second request on
		serveFixed(serversJSON("", serverJSON(1)), plainLANJSON).ServeHTTP(w, r)
	}))
	got, err := c.List(t.Context())
	if err == nil || got.Servers != nil || !strings.Contains(err.Error(), "HTTP 401") || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, %v", got, err)
	}
	writeFile(t, file, []byte("new"))
	if got, err = c.List(t.Context()); err != nil || len(got.Servers) != 1 {
		t.Errorf("after the rotation: %v, %v", got, err)
	}
}
