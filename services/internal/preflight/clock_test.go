package preflight

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestCheckSkew(t *testing.T) {
	for _, tt := range []struct {
		offset time.Duration
		known  bool
		want   string
	}{
		{time.Second, true, "in sync"},
		{-10 * time.Second, true, "10s behind this machine's"},
		{30 * time.Second, true, "30s ahead of this machine's"},
		{31 * time.Second, true, "31s ahead of this machine's; tokens"},
		{-time.Hour, true, "1h0m0s behind this machine's; tokens"},
		{0, false, "no Date header"},
	} {
		var theirs time.Time
		if tt.known {
			theirs = now.Add(tt.offset)
		}
		got, err := CheckSkew(theirs, now)
		if fails := tt.offset.Abs() > maxSkew || !tt.known; (err != nil) != fails || !strings.HasPrefix(got+fmt.Sprint(err), tt.want) {
			t.Errorf("%s: got %q, %v", tt.offset, got, err)
		}
	}
}

func TestReadsServerClock(t *testing.T) {
	var c clock
	if _, err := CheckSkew(c.read()); err == nil {
		t.Error("no error for a clock that was never read")
	}
	base := roundTripFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{Header: http.Header{"Date": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}}, nil
	})
	if _, err := c.wrap(base).RoundTrip(&http.Request{}); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckSkew(c.read()); err == nil || !strings.Contains(err.Error(), "ahead of this machine's") {
		t.Errorf("an hour ahead: %v", err)
	}
}
