package roster

import (
	"strings"
	"testing"
	"time"
)

func TestProviderIDsAreReadInBothTheirForms(t *testing.T) {
	for id, want := range map[string][2]string{
		"ionos://" + s1:                   {"", s1},
		" IONOS://" + strings.ToUpper(s1): {"", s1},
		"ionos:///" + dc + "/" + s1:       {dc, s1},
		"":                                {},
		"aws://" + s1:                     {},
		"ionos://":                        {},
		"ionos://worker-1":                {},
		"ionos:///" + s1:                  {},
		"ionos:///" + dc + "/worker-1":    {},
		"ionos:///frankfurt/" + s1:        {},
		"ionos://" + dc + "/" + s1:        {},
		"ionos://" + s1[:35]:              {},
		"ionos://" + s1 + "0":             {},
		"ionos://" + strings.Replace(s1, "-", "0", 1): {},
		"ionos://g" + s1[1:]:                          {},
		"ionos://." + s1[1:]:                          {},
		"ionos://:" + s1[1:]:                          {},
		"ionos:///." + dc[1:] + "/" + s1:              {},
		"ionos:///" + dc + "/" + s1 + "/extra":        {},
	} {
		datacenter, server, ok := parseProviderID(id)
		if datacenter != want[0] || server != want[1] || ok != (want[1] != "") {
			t.Errorf("%q: got %q, %q, %t", id, datacenter, server, ok)
		}
	}
	if !isUUID("09afffff-0000-4000-8000-000000000000") {
		t.Error("the first and the last of the digits and letters are refused")
	}
}

// A UUID that reads the same in either byte order names one server, not two.
func TestAUUIDThatIsItsOwnSwapMatchesItsServer(t *testing.T) {
	const same = "abababab-cdcd-efef-8000-00000000000a"
	w := newWorld(t, Config{})
	w.up(Candidate{Name: "a", UID: "a", State: Ready, SystemUUID: strings.ToUpper(same)})
	w.observed(listing(server(strings.ToUpper(same), "other", "10.0.0.11")))
	w.sees("a 10.0.0.11")
}

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		0: 5 * time.Second, 1: 5 * time.Second, 2: 10 * time.Second, 3: 20 * time.Second, 4: 40 * time.Second, 5: time.Minute, 1000: time.Minute,
	} {
		if got := backoff(failures, 5*time.Second, time.Minute); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
	if got := backoff(1, time.Hour, time.Minute); got != time.Minute {
		t.Errorf("a pace above the longest pause: %s", got)
	}
}
