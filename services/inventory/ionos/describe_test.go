package ionos

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// serveDescription returns these bodies for the datacenter and the LAN.
func serveDescription(datacenter, lan string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case datacenterPath:
			respond(w, 200, datacenter)
		case datacenterPath + "/lans/2":
			respond(w, 200, lan)
		default:
			respond(w, 404, `{"httpStatus":404,"messages":[{"errorCode":"309","message":"Resource does not exist"}]}`)
		}
	})
}

func readTestdata(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDescribe(t *testing.T) {
	cfg, j := startCloud(
		t,
		serveDescription(readTestdata(t, "datacenter.json"), readTestdata(t, "lan.json")),
	)
	c := newTestClient(t, cfg)
	got, err := c.Describe(t.Context(), Pair{strings.ToUpper(testDatacenter), "2"})
	if err != nil {
		t.Fatal(err)
	}
	want := Description{
		Datacenter: "production", LAN: "nodes",
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.7.222.0/24"), netip.MustParsePrefix("2a02:247a:b:8a00::/64")},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if n := len(j.all()); n != 2 || strings.Contains(j.all()[0].URL.Path, strings.ToUpper(testDatacenter)) {
		t.Errorf("%d requests, the first for %s", n, j.all()[0].URL.Path)
	}
}

func TestDescribeToleratesMissingFields(t *testing.T) {
	dcBody := `{"id":"` + testDatacenter + `","type":"datacenter","properties":{"name":"x","location":"de/txl"}}`
	for name, tc := range map[string]struct {
		datacenter, lan string
		want            Description
	}{
		"a public LAN has no prefix": {
			dcBody, `{"id":"2","type":"lan","properties":{"name":"wan","public":true,"ipv4CidrBlock":null}}`,
			Description{Datacenter: "x", LAN: "wan", Public: true},
		},
		"names that are null": {
			`{"id":"` + testDatacenter + `","type":"datacenter","properties":{"name":null,"location":null}}`, `{"id":"2","type":"lan","properties":{"name":null}}`,
			Description{},
		},
		"a datacenter without properties": {`{"id":"` + testDatacenter + `","type":"datacenter"}`, plainLANJSON, Description{LAN: "private"}},
		"a prefix that is not masked": {
			dcBody, `{"id":"2","type":"lan","properties":{"ipv4CidrBlock":"10.0.0.9/24"}}`,
			Description{Datacenter: "x", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newOfflineClient(
				t,
				Config{},
				serveDescription(tc.datacenter, tc.lan),
			).Describe(t.Context(), Pair{testDatacenter, "2"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDescribeErrors(t *testing.T) {
	dcBody := `{"id":"` + testDatacenter + `","type":"datacenter","properties":{"name":"x","location":"de/txl"}}`
	for name, tc := range map[string]struct {
		pair            Pair
		datacenter, lan string
		want            string
	}{
		"a datacenter that is missing":         {Pair{testServerID(9), "2"}, dcBody, plainLANJSON, "datacenter " + testServerID(9) + ": HTTP 404"},
		"a LAN that is missing":                {Pair{testDatacenter, "3"}, dcBody, plainLANJSON, "LAN 3 of datacenter " + testDatacenter + ": HTTP 404"},
		"another datacenter":                   {Pair{testDatacenter, "2"}, strings.Replace(dcBody, testDatacenter, testServerID(9), 1), plainLANJSON, "want datacenter"},
		"an empty response":                    {Pair{testDatacenter, "2"}, "", plainLANJSON, "without type or id"},
		"an error in a 200":                    {Pair{testDatacenter, "2"}, `{"httpStatus":500}`, plainLANJSON, "without type or id"},
		"an invalid prefix":                    {Pair{testDatacenter, "2"}, dcBody, `{"id":"2","type":"lan","properties":{"ipv4CidrBlock":"10.0.0.0"}}`, `"10.0.0.0" is not an address prefix`},
		"an invalid IPv6 prefix, such as AUTO": {Pair{testDatacenter, "2"}, dcBody, `{"id":"2","type":"lan","properties":{"ipv6CidrBlock":"AUTO"}}`, `"AUTO" is not an address prefix`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newOfflineClient(t, Config{}, serveDescription(tc.datacenter, tc.lan)).Describe(t.Context(), tc.pair)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if diff := cmp.Diff(Description{}, got); diff != "" {
				t.Errorf("values beside the error: %+v", got)
			}
		})
	}
}
