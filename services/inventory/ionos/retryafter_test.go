package ionos

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestHearsHowLongTheCloudAsksUsToWait(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		status      int
		value, date string
		want        time.Duration
		asked       bool
	}{
		"seconds, in full":                   {429, "600", "", 10 * time.Minute, true},
		"no seconds":                         {429, "0", "", 0, true},
		"a date":                             {429, "Sat, 21 Nov 2026 12:02:00 GMT", "", 2 * time.Minute, true},
		"a date by the clock of the cloud":   {429, "Sat, 21 Nov 2026 13:02:00 GMT", "Sat, 21 Nov 2026 13:00:00 GMT", 2 * time.Minute, true},
		"a date that is past":                {429, "Sat, 21 Nov 2026 11:00:00 GMT", "", 0, true},
		"a date in another century":          {429, "Sat, 21 Nov 2126 11:00:00 GMT", "", longestWait, true},
		"more seconds than a number holds":   {429, strings.Repeat("9", 30), "", longestWait, true},
		"rubbish":                            {429, "soon", "", defaultWait, true},
		"a negative number":                  {429, "-5", "", defaultWait, true},
		"a fraction":                         {429, "1.5", "", defaultWait, true},
		"too many requests, nothing further": {429, "", "", defaultWait, true},
		"unavailable, with seconds":          {503, "7", "", 7 * time.Second, true},
		"unavailable, nothing further":       {503, "", "", 0, false},
		"a success":                          {200, "7", "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			h.Set("Retry-After", tc.value)
			h.Set("Date", tc.date)
			if got, asked := asksToWait(tc.status, h, now); got != tc.want || asked != tc.asked {
				t.Errorf("got %v, %t, want %v, %t", got, asked, tc.want, tc.asked)
			}
		})
	}
}

func TestRetryAfterComesOutOfTheErrorOfAListing(t *testing.T) {
	for name, value := range map[string]string{
		"seconds": "120",
		"a date":  "by the handler",
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := cloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if value != "120" {
					now := time.Now()
					w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
					value = now.Add(2 * time.Minute).UTC().Format(http.TimeFormat)
				}
				w.Header().Set("Retry-After", value)
				respond(w, 429, `{"httpStatus":429,"messages":[{"message":"slow down"}]}`)
			}))
			_, err := client(t, cfg).List(t.Context())
			got, ok := RetryAfter(err)
			if !ok || got != 2*time.Minute {
				t.Errorf("got %v, %t from %v", got, ok, err)
			}
			if !strings.Contains(err.Error(), "HTTP 429") || !strings.Contains(err.Error(), "slow down") {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, ok := RetryAfter(errors.New("another")); ok {
		t.Error("a foreign error asks to wait")
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "1", "-1", "99999999999999999999", "Sat, 21 Nov 2026 12:02:00 GMT", "soon", "0x1", "1e9", " 5 "} {
		f.Add(429, s, s)
		f.Add(503, s, "")
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, value, date string) {
		h := http.Header{"Retry-After": {value}, "Date": {date}}
		wait, asked := asksToWait(status, h, now)
		if wait < 0 || wait > longestWait || (!asked && wait != 0) || (status == 429 && !asked) {
			t.Errorf("%d %q %q: %v, %t", status, value, date, wait, asked)
		}
	})
}

func FuzzTokenExpiry(f *testing.F) {
	f.Add("eyJhbGciOiJub25lIn0.eyJleHAiOjE5MDAwMDAwMDB9.c2ln")
	f.Add("a.b.c")
	f.Add("a.eyJleHAiOi0xfQ.c")
	f.Fuzz(func(t *testing.T, token string) {
		if at, ok := expiry(token); ok && at.Unix() < 0 {
			t.Errorf("%q: %v", token, at)
		}
	})
}

// canned is a cloud without a network, for the fuzzer.
type canned struct {
	kind, servers, lan []byte
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	body := c.servers
	if strings.Contains(r.URL.Path, "/lans/") {
		body = c.lan
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Request: r,
		Header: http.Header{"Content-Type": {string(c.kind)}},
		Body:   io.NopCloser(bytes.NewReader(body)),
	}, nil
}

// Whatever the cloud says: no panic, and a listing without error is one that was told.
func FuzzAnswers(f *testing.F) {
	kind := "application/json"
	f.Add(kind, collection("", server(1, nic("2", "10.0.0.5"))), plainLAN)
	f.Add(kind, collection("next", server(1), server(2)), plainLAN)
	f.Add(kind, "{}", plainLAN)
	f.Add("application/xml", "<Servers/>", "<Lan/>")
	f.Add(kind, collection("", `{"id":"x","metadata":{"createdDate":""}}`), `{"id":"2","type":"lan","properties":{"ipFailover":[null]}}`)
	c, err := New(Config{Token: secret, Pairs: []Pair{{dc, "2"}}, PageSize: 2, Registerer: prometheus.NewRegistry()})
	if err != nil {
		f.Fatal(err)
	}
	trip := c.api.GetConfig().HTTPClient.Transport.(*transport)
	f.Fuzz(func(t *testing.T, kind, servers, lan string) {
		trip.base = canned{[]byte(kind), []byte(servers), []byte(lan)}
		got, err := c.List(t.Context())
		if err != nil {
			if got.Servers != nil || got.Bad != nil || got.Failover != nil {
				t.Errorf("values beside the error %v: %+v", err, got)
			}
			return
		}
		if !strings.Contains(strings.ToLower(servers), dc) {
			t.Errorf("a listing out of %q", servers)
		}
		for _, s := range got.Servers {
			if !uuidForm.MatchString(s.ID) || got.Bad[s.ID] != "" {
				t.Errorf("server %q", s.ID)
			}
		}
	})
}
