package ionos

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// described is a cloud that answers for the datacenter and the LAN with these bodies.
func described(date, datacenter, lan string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if date != "" {
			w.Header().Set("Date", date)
		}
		switch r.URL.Path {
		case dcPath:
			respond(w, 200, datacenter)
		case dcPath + "/lans/2":
			respond(w, 200, lan)
		default:
			respond(w, 404, `{"httpStatus":404,"messages":[{"errorCode":"309","message":"Resource does not exist"}]}`)
		}
	})
}

func document(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDescribesAPair(t *testing.T) {
	cfg, j := cloud(t, described("Sat, 21 Nov 2026 12:02:00 GMT", document(t, "datacenter.json"), document(t, "lan.json")))
	before := time.Now()
	c := client(t, cfg)
	got, err := c.Describe(t.Context(), Pair{strings.ToUpper(dc), "2"})
	if err != nil {
		t.Fatal(err)
	}
	theirs, readAt := c.Clock()
	if !theirs.Equal(time.Date(2026, 11, 21, 12, 2, 0, 0, time.UTC)) || readAt.Before(before) || readAt.After(time.Now()) {
		t.Errorf("the clock showed %s at %s", theirs, readAt)
	}
	want := Description{
		Datacenter: "production", Location: "de/fra", LAN: "nodes",
		IPv4: netip.MustParsePrefix("10.7.222.0/24"), IPv6: netip.MustParsePrefix("2a02:247a:b:8a00::/64"),
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if n := len(j.all()); n != 2 || strings.Contains(j.all()[0].URL.Path, strings.ToUpper(dc)) {
		t.Errorf("%d requests, the first for %s", n, j.all()[0].URL.Path)
	}
}

func TestDescribesWhatIsThere(t *testing.T) {
	dcBody := `{"id":"` + dc + `","type":"datacenter","properties":{"name":"x","location":"de/txl"}}`
	for name, tc := range map[string]struct {
		date, datacenter, lan string
		want                  Description
	}{
		"a public LAN has no block": {
			"", dcBody, `{"id":"2","type":"lan","properties":{"name":"wan","public":true,"ipv4CidrBlock":null}}`,
			Description{Datacenter: "x", Location: "de/txl", LAN: "wan", Public: true},
		},
		"names that are null": {
			"", `{"id":"` + dc + `","type":"datacenter","properties":{"name":null,"location":null}}`, `{"id":"2","type":"lan","properties":{"name":null}}`,
			Description{},
		},
		"a datacenter without properties": {"", `{"id":"` + dc + `","type":"datacenter"}`, plainLAN, Description{LAN: "private"}},
		"a block that is not masked": {
			"", dcBody, `{"id":"2","type":"lan","properties":{"ipv4CidrBlock":"10.0.0.9/24"}}`,
			Description{Datacenter: "x", Location: "de/txl", IPv4: netip.MustParsePrefix("10.0.0.0/24")},
		},
		"a clock that cannot be read": {"noon", dcBody, plainLAN, Description{Datacenter: "x", Location: "de/txl", LAN: "private"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := offline(t, Config{}, described(tc.date, tc.datacenter, tc.lan)).Describe(t.Context(), Pair{dc, "2"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadsTheClockFromAnyAnswer(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		date string
		pair Pair
		want time.Time
	}{
		"the LAN is missing":            {noon.Format(http.TimeFormat), Pair{dc, "3"}, noon},
		"the datacenter is missing":     {noon.Format(http.TimeFormat), Pair{uuid(9), "2"}, noon},
		"the date cannot be read":       {"noon", Pair{dc, "2"}, time.Time{}},
		"the pair is wrong in its form": {noon.Format(http.TimeFormat), Pair{"frankfurt", "2"}, time.Time{}}, // nobody is asked
	} {
		c := offline(t, Config{}, described(tc.date, "{}", plainLAN))
		_, _ = c.Describe(t.Context(), tc.pair)
		if theirs, readAt := c.Clock(); !theirs.Equal(tc.want) || theirs.IsZero() != readAt.IsZero() {
			t.Errorf("%s: got %s at %s, want %s", name, theirs, readAt, tc.want)
		}
	}
}

func TestADescriptionIsWholeOrAnErrorThatNamesWhatWasAsked(t *testing.T) {
	dcBody := `{"id":"` + dc + `","type":"datacenter","properties":{"name":"x","location":"de/txl"}}`
	for name, tc := range map[string]struct {
		pair            Pair
		datacenter, lan string
		want            string
	}{
		"a datacenter that is missing":               {Pair{uuid(9), "2"}, dcBody, plainLAN, "datacenter " + uuid(9) + ": HTTP 404"},
		"a LAN that is missing":                      {Pair{dc, "3"}, dcBody, plainLAN, "LAN 3 of datacenter " + dc + ": HTTP 404"},
		"a datacenter that is no UUID":               {Pair{"frankfurt", "2"}, dcBody, plainLAN, `"frankfurt"`},
		"another datacenter":                         {Pair{dc, "2"}, strings.Replace(dcBody, dc, uuid(9), 1), plainLAN, "expected the datacenter"},
		"an empty answer":                            {Pair{dc, "2"}, "", plainLAN, "lacks its type or id"},
		"an error in a 200":                          {Pair{dc, "2"}, `{"httpStatus":500}`, plainLAN, "lacks its type or id"},
		"a block that is none":                       {Pair{dc, "2"}, dcBody, `{"id":"2","type":"lan","properties":{"ipv4CidrBlock":"10.0.0.0"}}`, `"10.0.0.0" is no block`},
		"an IPv6 block that is none, such as a word": {Pair{dc, "2"}, dcBody, `{"id":"2","type":"lan","properties":{"ipv6CidrBlock":"AUTO"}}`, `"AUTO" is no block`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := offline(t, Config{}, described("", tc.datacenter, tc.lan)).Describe(t.Context(), tc.pair)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if got != (Description{}) {
				t.Errorf("an error came with %+v", got)
			}
		})
	}
}
