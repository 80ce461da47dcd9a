package ionos

import (
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// fuzzedCloud is a cloud with arbitrary responses, and a client of it with the real SDK. There is no
// network, so that the same input always takes the same path.
type fuzzedCloud struct {
	*Client

	kind, servers, lan, datacenter string
}

func newFuzzedCloud(f *testing.F) *fuzzedCloud {
	f.Helper()
	cloud := new(fuzzedCloud)
	cloud.Client = newOfflineClient(f, Config{Budget: 1 << 30}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", cloud.kind)
		switch {
		case strings.HasSuffix(r.URL.Path, "/servers"):
			io.WriteString(w, cloud.servers)
		case strings.HasSuffix(r.URL.Path, "/lans/2"):
			io.WriteString(w, cloud.lan)
		default:
			io.WriteString(w, cloud.datacenter)
		}
	}))
	return cloud
}

// For any response: no panic, and a listing without an error has only valid IDs, canonical addresses and
// every server of the page.
func FuzzListing(f *testing.F) {
	const kind = "application/json"
	f.Add(kind, readTestdata(f, "servers.json"), readTestdata(f, "lan.json"))
	f.Add(
		kind,
		serversJSON("", serverJSON(1, nicJSON("2", "10.0.0.5", "::ffff:10.0.0.5")), serverJSON(2, nicJSON("2", "fe80::1%eth0"))),
		plainLANJSON,
	)
	f.Add(kind, serversJSON("next", serverJSON(1), serverJSON(2)), plainLANJSON)
	f.Add(kind, serversJSON("", serverJSON(1), serverJSON(1)), plainLANJSON)
	f.Add(kind, "{}", plainLANJSON)
	f.Add(kind, `{"httpStatus":401,"messages":[{"errorCode":"315","message":"Unauthorized"}]}`, plainLANJSON)
	f.Add("application/xml", "<Servers/>", "<Lan/>")
	f.Add(kind, serversJSON("", `{"id":"x","metadata":{"createdDate":""}}`), `{"id":"2","type":"lan","properties":{"ipFailover":[null]}}`)
	cloud := newFuzzedCloud(f)
	f.Fuzz(func(t *testing.T, kind, servers, lan string) {
		cloud.kind, cloud.servers, cloud.lan = kind, servers, lan
		got, err := cloud.List(t.Context())
		if err != nil {
			if got.Servers != nil || got.Invalid != nil || got.Failover != nil {
				t.Errorf("values beside the error %v: %+v", err, got)
			}
			return
		}
		checkListing(t, got)
		var page struct {
			Items *[]struct {
				ID *string `json:"id"`
			} `json:"items"`
		}
		if json.Unmarshal([]byte(servers), &page) != nil {
			return // XML
		}
		listed := make(map[string]bool)
		for _, s := range got.Servers {
			listed[s.ID] = true
		}
		for _, s := range *page.Items {
			sid := strings.ToLower(strings.TrimSpace(*s.ID))
			if _, bad := got.Invalid[sid]; bad == listed[sid] {
				t.Errorf("server %q: listed %t, bad %t", sid, listed[sid], bad)
			}
		}
		if n := len(got.Servers) + len(got.Invalid); n != len(*page.Items) {
			t.Errorf("%d servers of a page of %d", n, len(*page.Items))
		}
	})
}

func checkListing(t *testing.T, l roster.Listing) {
	t.Helper()
	canonical := func(addrs []netip.Addr) {
		for _, a := range addrs {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Errorf("address %q", a)
			}
		}
	}
	for _, s := range l.Servers {
		if !uuidPattern.MatchString(s.ID) || s.Datacenter != testDatacenter {
			t.Errorf("server %q of datacenter %q", s.ID, s.Datacenter)
		}
		for _, n := range s.NICs {
			if n.ID == "" || n.LAN != "2" {
				t.Errorf("NIC %q on LAN %q", n.ID, n.LAN)
			}
			canonical(n.Addresses)
		}
	}
	canonical(l.Failover)
}

func FuzzDescribe(f *testing.F) {
	f.Add(readTestdata(f, "datacenter.json"), readTestdata(f, "lan.json"))
	f.Add(
		`{"id":"`+testDatacenter+`","type":"datacenter","properties":null}`,
		`{"id":"2","type":"lan","properties":{"ipv4CidrBlock":"10.0.0.0/33"}}`,
	)
	f.Add("", plainLANJSON)
	cloud := newFuzzedCloud(f)
	cloud.kind = "application/json"
	f.Fuzz(func(t *testing.T, datacenter, lan string) {
		cloud.datacenter, cloud.lan = datacenter, lan
		got, err := cloud.Describe(t.Context(), Pair{testDatacenter, "2"})
		if err != nil && !reflect.DeepEqual(got, Description{}) {
			t.Errorf("values beside the error %v: %+v", err, got)
		}
		for _, p := range got.Prefixes {
			if p != p.Masked() {
				t.Errorf("got %+v", got)
			}
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "1", "-1", "99999999999999999999", "Sat, 21 Nov 2026 12:02:00 GMT", "soon", "0x1", "1e9", " 5 "} {
		f.Add(429, s, s)
		f.Add(503, s, "")
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, value, date string) {
		h := http.Header{retryAfterHeader: {value}, "Date": {date}}
		wait, requested := parseRetryAfter(&http.Response{StatusCode: status, Header: h}, now)
		if wait < 0 || wait > maxRetryAfter || (!requested && wait != 0) || (status == 429 && !requested) {
			t.Errorf("%d %q %q: %v, %t", status, value, date, wait, requested)
		}
	})
}

func FuzzTokenExpiry(f *testing.F) {
	f.Add(tokenExpiringAt(time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)))
	f.Add("eyJhbGciOiJub25lIn0.eyJleHAiOjE5MDAwMDAwMDB9.c2ln")
	f.Add("a.b.c")
	f.Add("a.eyJleHAiOi0xfQ.c")
	f.Add("a.eyJleHAiOjFlNDB9.c") // 1e40
	f.Fuzz(func(t *testing.T, token string) {
		if at, ok := parseExpiry(token); at.IsZero() == ok || ok && at.Unix() < 0 {
			t.Errorf("%q: %v, %t", token, at, ok)
		}
	})
}
