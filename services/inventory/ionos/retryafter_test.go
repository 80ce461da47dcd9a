package ionos

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		status      int
		value, date string
		want        time.Duration
		requested   bool
	}{
		"seconds, in full":                   {429, "600", "", 10 * time.Minute, true},
		"no seconds":                         {429, "0", "", 0, true},
		"a date":                             {429, "Sat, 21 Nov 2026 12:02:00 GMT", "", 2 * time.Minute, true},
		"a date by the clock of the cloud":   {429, "Sat, 21 Nov 2026 13:02:00 GMT", "Sat, 21 Nov 2026 13:00:00 GMT", 2 * time.Minute, true},
		"a date that is past":                {429, "Sat, 21 Nov 2026 11:00:00 GMT", "", 0, true},
		"a date in another century":          {429, "Sat, 21 Nov 2126 11:00:00 GMT", "", maxRetryAfter, true},
		"more seconds than a number holds":   {429, strings.Repeat("9", 30), "", maxRetryAfter, true},
		"an invalid value":                   {429, "soon", "", defaultRetryAfter, true},
		"a negative number":                  {429, "-5", "", defaultRetryAfter, true},
		"a fraction":                         {429, "1.5", "", defaultRetryAfter, true},
		"too many requests, nothing further": {429, "", "", defaultRetryAfter, true},
		"unavailable, with seconds":          {503, "7", "", 7 * time.Second, true},
		"unavailable, nothing further":       {503, "", "", 0, false},
		"a success":                          {200, "7", "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http.Response{StatusCode: tc.status, Header: http.Header{}}
			r.Header.Set(retryAfterHeader, tc.value)
			r.Header.Set("Date", tc.date)
			if got, requested := parseRetryAfter(r, now); got != tc.want || requested != tc.requested {
				t.Errorf("got %v, %t, want %v, %t", got, requested, tc.want, tc.requested)
			}
		})
	}
}

func TestRetryAfterOfListingError(t *testing.T) {
	for name, value := range map[string]string{
		"seconds": "120",
		"a date":  "by the handler",
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if value != "120" {
					now := time.Now()
					w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
					value = now.Add(2 * time.Minute).UTC().Format(http.TimeFormat)
				}
				w.Header().Set("Retry-After", value)
				respond(w, 429, `{"httpStatus":429,"messages":[{"message":"slow down"}]}`)
			}))
			_, err := newTestClient(t, cfg).List(t.Context())
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
		t.Error("RetryAfter of another error")
	}
}
