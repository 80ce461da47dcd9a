package ionos

import (
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// foreign is a cloud that says whatever the fuzzer wants, and a client of it through the
// real SDK; without a network, so that the same words always take the same path.
type foreign struct {
	*Client

	kind, date, servers, lan, datacenter string
}

func newForeign(f *testing.F) *foreign {
	f.Helper()
	said := new(foreign)
	said.Client = offline(f, Config{Budget: 1 << 30}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", said.kind)
		w.Header().Set("Date", said.date)
		switch {
		case strings.HasSuffix(r.URL.Path, "/servers"):
			io.WriteString(w, said.servers)
		case strings.HasSuffix(r.URL.Path, "/lans/2"):
			io.WriteString(w, said.lan)
		default:
			io.WriteString(w, said.datacenter)
		}
	}))
	return said
}

// Whatever the cloud says: no panic, and a listing without an error has valid IDs and
// canonical addresses only, and every server of the page.
func FuzzListing(f *testing.F) {
	const kind = "application/json"
	f.Add(kind, document(f, "servers.json"), document(f, "lan.json"))
	f.Add(kind, collection("", server(1, nic("2", "10.0.0.5", "::ffff:10.0.0.5")), server(2, nic("2", "fe80::1%eth0"))), plainLAN)
	f.Add(kind, collection("next", server(1), server(2)), plainLAN)
	f.Add(kind, collection("", server(1), server(1)), plainLAN)
	f.Add(kind, "{}", plainLAN)
	f.Add(kind, `{"httpStatus":401,"messages":[{"errorCode":"315","message":"Unauthorized"}]}`, plainLAN)
	f.Add("application/xml", "<Servers/>", "<Lan/>")
	f.Add(kind, collection("", `{"id":"x","metadata":{"createdDate":""}}`), `{"id":"2","type":"lan","properties":{"ipFailover":[null]}}`)
	said := newForeign(f)
	f.Fuzz(func(t *testing.T, kind, servers, lan string) {
		said.kind, said.servers, said.lan = kind, servers, lan
		got, err := said.List(t.Context())
		if err != nil {
			if got.Servers != nil || got.Bad != nil || got.Failover != nil {
				t.Errorf("values beside the error %v: %+v", err, got)
			}
			return
		}
		valid(t, got)
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
			if _, bad := got.Bad[sid]; bad == listed[sid] {
				t.Errorf("server %q: listed %t, bad %t", sid, listed[sid], bad)
			}
		}
		if n := len(got.Servers) + len(got.Bad); n != len(*page.Items) {
			t.Errorf("%d servers of a page of %d", n, len(*page.Items))
		}
	})
}

func valid(t *testing.T, l roster.Listing) {
	t.Helper()
	canonical := func(addrs []netip.Addr) {
		for _, a := range addrs {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Errorf("address %q", a)
			}
		}
	}
	for _, s := range l.Servers {
		if !uuidForm.MatchString(s.ID) || s.Datacenter != dc {
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
	f.Add("Sat, 21 Nov 2026 12:02:00 GMT", document(f, "datacenter.json"), document(f, "lan.json"))
	f.Add("", `{"id":"`+dc+`","type":"datacenter","properties":null}`, `{"id":"2","type":"lan","properties":{"ipv4CidrBlock":"10.0.0.0/33"}}`)
	f.Add("noon", "", plainLAN)
	said := newForeign(f)
	said.kind = "application/json"
	f.Fuzz(func(t *testing.T, date, datacenter, lan string) {
		said.date, said.datacenter, said.lan = date, datacenter, lan
		got, err := said.Describe(t.Context(), Pair{dc, "2"})
		if err != nil && got != (Description{}) {
			t.Errorf("values beside the error %v: %+v", err, got)
		}
		theirs, readAt := said.Clock()
		if got.IPv4 != got.IPv4.Masked() || got.IPv6 != got.IPv6.Masked() || theirs.IsZero() != readAt.IsZero() {
			t.Errorf("got %+v, the clock %s at %s", got, theirs, readAt)
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
		h := http.Header{"Retry-After": {value}, "Date": {date}}
		wait, asked := asksToWait(status, h, now)
		if wait < 0 || wait > longestWait || (!asked && wait != 0) || (status == 429 && !asked) {
			t.Errorf("%d %q %q: %v, %t", status, value, date, wait, asked)
		}
	})
}

func FuzzTokenExpiry(f *testing.F) {
	f.Add(tokenUntil(time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)))
	f.Add("eyJhbGciOiJub25lIn0.eyJleHAiOjE5MDAwMDAwMDB9.c2ln")
	f.Add("a.b.c")
	f.Add("a.eyJleHAiOi0xfQ.c")
	f.Add("a.eyJleHAiOjFlNDB9.c") // 1e40
	f.Fuzz(func(t *testing.T, token string) {
		if at, ok := expiry(token); at.IsZero() == ok || ok && at.Unix() < 0 {
			t.Errorf("%q: %v, %t", token, at, ok)
		}
	})
}
