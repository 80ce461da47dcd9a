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
		ahead time.Duration
		known bool
		want  string
	}{
		{time.Second, true, "within a second or two of ours"},
		{-10 * time.Second, true, "10s behind ours"},
		{30 * time.Second, true, "30s ahead of ours"},
		{31 * time.Second, true, "31s ahead of ours: tokens"},
		{-time.Hour, true, "1h0m0s behind ours: tokens"},
		{0, false, "its answers bear no date"},
	} {
		got, err := CheckSkew(tt.ahead, tt.known)
		if fails := tt.ahead.Abs() > maxSkew || !tt.known; (err != nil) != fails || !strings.HasPrefix(got+fmt.Sprint(err), tt.want) {
			t.Errorf("%s: got %q, %v", tt.ahead, got, err)
		}
	}
}

func TestReadsServerClock(t *testing.T) {
	var c Clock
	if _, err := c.CheckSkew(); err == nil {
		t.Error("a clock that was never read agrees with ours")
	}
	base := roundTripFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{Header: http.Header{"Date": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}}, nil
	})
	if _, err := c.Wrap(base).RoundTrip(&http.Request{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CheckSkew(); err == nil || !strings.Contains(err.Error(), "ahead of ours") {
		t.Errorf("an hour ahead: %v", err)
	}
}
