package ionos

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/roster"

	"github.com/google/go-cmp/cmp"
)

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func parseAddrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestListsServersAndNICsOnConfiguredLANs(t *testing.T) {
	servers := serversJSON("",
		serverJSON(2, nicJSON("2", "10.0.0.12", "10.0.0.11"), nicJSON("7", "192.0.2.9")),
		strings.ToUpper(serverJSON(1)[:44])+serverJSON(1)[44:], // an ID in capitals
	)
	servers = strings.Replace(servers, `"ID"`, `"id"`, 1)
	lan := `{"id":"2","type":"lan","properties":{"ipFailover":[{"ip":"10.0.0.99","nicUuid":"n"},{"ip":"10.0.0.98"},{"ip":"10.0.0.99"}]}}`
	cfg, j := startCloud(t, serveFixed(servers, lan))
	got, err := newTestClient(t, cfg).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := roster.Listing{
		Servers: []roster.Server{
			{ID: testServerID(1), Datacenter: testDatacenter, Name: "node-1"},
			{ID: testServerID(2), Datacenter: testDatacenter, Name: "node-2", NICs: []roster.NIC{
				{ID: "nic-2-10.0.0.12-10.0.0.11", LAN: "2", Addresses: parseAddrs("10.0.0.12", "10.0.0.11")},
			}},
		},
		Failover: parseAddrs("10.0.0.98", "10.0.0.99"),
		Invalid:  map[string]string{},
	}
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Error(diff)
	}
	q := j.all()[0].URL.Query()
	if q.Get("depth") != "3" || q.Get("limit") != "1000" || q.Get("orderBy") == "" {
		t.Errorf("query: %v", q)
	}
}

func TestNormalizesAddresses(t *testing.T) {
	s := strings.Replace(serverJSON(1, nicJSON("2", "::ffff:10.0.0.5", "10.0.0.5")), `"ips"`, `"ipv6Ips":["2001:DB8:0::1"],"ips"`, 1)
	cfg, _ := startCloud(t, serveFixed(serversJSON("", s), plainLANJSON))
	got, err := newTestClient(t, cfg).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parseAddrs("10.0.0.5", "2001:db8::1"), got.Servers[0].NICs[0].Addresses, compareAddrs); diff != "" {
		t.Error(diff)
	}
}

func TestReadsServersOncePerDatacenter(t *testing.T) {
	cfg, j := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lan, ok := strings.CutPrefix(r.URL.Path, datacenterPath+"/lans/"); ok {
			respond(w, 200, fmt.Sprintf(`{"id":%q,"type":"lan","properties":{"ipFailover":[{"ip":"10.0.%s.1"}]}}`, lan, lan))
			return
		}
		respond(w, 200, serversJSON("", serverJSON(1, nicJSON("2", "10.0.2.5"), nicJSON("3", "10.0.3.5"), nicJSON("4", "10.0.4.5"))))
	}))
	cfg.Pairs = []Pair{{testDatacenter, "2"}, {strings.ToUpper(testDatacenter), "3"}, {testDatacenter, "2"}}
	got, err := newTestClient(t, cfg).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(j.all()) != 3 || len(got.Servers) != 1 || len(got.Servers[0].NICs) != 2 {
		t.Errorf("%d requests, %+v", len(j.all()), got.Servers)
	}
	if diff := cmp.Diff(parseAddrs("10.0.2.1", "10.0.3.1"), got.Failover, compareAddrs); diff != "" {
		t.Error(diff)
	}
}

// The SDK accepts some of these. None may be taken for an empty or a partial cloud.
func TestInvalidResponsesAreErrors(t *testing.T) {
	good := serversJSON("", serverJSON(1, nicJSON("2", "10.0.0.5")))
	for name, tc := range map[string]struct {
		status int
		kind   string // content type
		body   string
		want   string
	}{
		"a 200 with an empty body":          {200, "", "", "unexpected end of JSON input"},
		"a 200 with {}":                     {200, "", "{}", "without type or id"},
		"a 200 with null":                   {200, "", "null", "want {"},
		"items that are null":               {200, "", `{"id":"` + testDatacenter + `/servers","type":"collection","items":null}`, "without items"},
		"items that are absent":             {200, "", `{"id":"` + testDatacenter + `/servers","type":"collection"}`, "without items"},
		"a 204":                             {204, "", "", "unexpected end of JSON input"},
		"a 200 with an error body":          {200, "", `{"httpStatus":500,"messages":[{"errorCode":"1","message":"oops"}]}`, "without type or id"},
		"a collection of another id":        {200, "", strings.Replace(serversJSON(""), testDatacenter, testServerID(9), 1), "want collection"},
		"a collection without id":           {200, "", `{"type":"collection","items":[]}`, "without type or id"},
		"another type":                      {200, "", strings.Replace(serversJSON(""), "collection", "server", 1), "want collection"},
		"a type that the SDK does not know": {200, "", strings.Replace(good, `"type":"nic"`, `"type":"quantum-nic"`, 1), "quantum-nic"},
		"a lan that is a string":            {200, "", strings.Replace(good, `"lan":2`, `"lan":"2"`, 1), "invalid response"},
		"an invalid date":                   {200, "", strings.Replace(good, "03:04:05Z", "03:04:05+01:00", 1), "invalid response"},
		"truncated JSON":                    {200, "", good[:len(good)-30], "invalid response"},
		"JSON with trailing data":           {200, "", good + "{}", "invalid response"},
		"a content type that is not JSON":   {200, "text/plain", good, "undefined response type"},
		"XML":                               {200, "application/xml", "<Servers></Servers>", "without type or id"},
		"a server without id":               {200, "", serversJSON("", serverJSON(1), `{"type":"server"}`), "position 1 has no id"},
		"a server that is null":             {200, "", serversJSON("", "null"), "position 0 has no id"},
		"a 500":                             {500, "", `{"httpStatus":500,"messages":[{"message":"it burns"}]}`, "HTTP 500 Internal Server Error: it burns"},
		"a 502 with HTML":                   {502, "text/html", "<html>Bad Gateway</html>", "HTTP 502 Bad Gateway"},
		"a 503":                             {503, "", "", "HTTP 503"},
		"a 404":                             {404, "", "{}", "HTTP 404"},
		"an unknown status":                 {599, "", "{}", "HTTP 599"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/servers") {
					respond(w, 200, plainLANJSON)
					return
				}
				kind := tc.kind
				if kind == "" {
					kind = "application/json"
				}
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(tc.status)
				w.Write([]byte(tc.body))
			}))
			got, err := newTestClient(t, cfg).List(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), testDatacenter) {
				t.Fatalf("got %v, want an error with %q and the datacenter", err, tc.want)
			}
			if diff := cmp.Diff(roster.Listing{}, got, compareAddrs); diff != "" {
				t.Errorf("values beside the error: %s", diff)
			}
		})
	}
}

func TestEmptyCollectionIsEmptyListing(t *testing.T) {
	cfg, _ := startCloud(t, serveFixed(serversJSON(""), plainLANJSON))
	got, err := newTestClient(t, cfg).List(t.Context())
	if err != nil || len(got.Servers) != 0 || len(got.Invalid) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestInvalidLANIsAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		status     int
		body, want string
	}{
		"a LAN that is missing":            {404, `{"httpStatus":404,"messages":[{"message":"Resource does not exist"}]}`, "Resource does not exist"},
		"an empty body":                    {200, "", "without type"},
		"another LAN":                      {200, `{"id":"3","type":"lan","properties":{}}`, "want lan 2"},
		"no properties":                    {200, `{"id":"2","type":"lan"}`, "without properties"},
		"a failover group without address": {200, `{"id":"2","type":"lan","properties":{"ipFailover":[{"nicUuid":"n"}]}}`, `"" is not an IP address`},
		"an invalid failover address":      {200, `{"id":"2","type":"lan","properties":{"ipFailover":[{"ip":"10.0.0.300"}]}}`, "10.0.0.300"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/lans/2") {
					respond(w, tc.status, tc.body)
					return
				}
				respond(w, 200, serversJSON("", serverJSON(1)))
			}))
			got, err := newTestClient(t, cfg).List(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) ||
				!strings.Contains(err.Error(), "LAN 2 of datacenter "+testDatacenter) {
				t.Errorf("got %v", err)
			}
			if got.Servers != nil {
				t.Error("servers beside the error")
			}
		})
	}
}

func TestInvalidServerIsReportedApart(t *testing.T) {
	id1 := `"id":"` + testServerID(1) + `","type":"server"`
	for name, bad := range map[string]string{
		"a server of another type":    strings.Replace(serverJSON(1), `"server"`, `"volume"`, 1),
		"a server without type":       strings.Replace(serverJSON(1), `"type":"server",`, ``, 1),
		"a server without properties": `{` + id1 + `,"entities":{"nics":{"items":[]}}}`,
		"a server without entities":   `{` + id1 + `,"properties":{"name":"x"}}`,
		"entities that are null":      `{` + id1 + `,"properties":{"name":"x"},"entities":null}`,
		"no collection of NICs":       `{` + id1 + `,"properties":{"name":"x"},"entities":{}}`,
		"NICs without items":          `{` + id1 + `,"properties":{"name":"x"},"entities":{"nics":{"id":"y"}}}`,
		"NICs with a next page":       `{` + id1 + `,"properties":{"name":"x"},"entities":{"nics":{"items":[],"_links":{"next":"z"}}}}`,
		"a NIC that is null":          serverJSON(1, "null"),
		"a NIC without id":            serverJSON(1, `{"type":"nic","properties":{"lan":2}}`),
		"a NIC of another type":       serverJSON(1, strings.Replace(nicJSON("2"), `"type":"nic"`, `"type":"lan"`, 1)),
		"a NIC without properties":    serverJSON(1, `{"id":"n","type":"nic"}`),
		"a NIC without LAN":           serverJSON(1, `{"id":"n","type":"nic","properties":{"ips":["10.0.0.5"]}}`),
		"an invalid address":          serverJSON(1, nicJSON("2", "10.0.0.256")),
		"an address with a zone":      serverJSON(1, nicJSON("2", "fe80::1%eth0")),
		"an address that is null":     serverJSON(1, `{"id":"n","type":"nic","properties":{"lan":2,"ips":[null]}}`),
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := startCloud(t, serveFixed(serversJSON("", bad, serverJSON(2, nicJSON("2", "10.0.0.6"))), plainLANJSON))
			got, err := newTestClient(t, cfg).List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Invalid) != 1 || got.Invalid[testServerID(1)] == "" || len(got.Servers) != 1 ||
				got.Servers[0].ID != testServerID(2) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestToleratesMissingFields(t *testing.T) {
	for name, s := range map[string]string{
		"a name that is null":               strings.Replace(serverJSON(1), `"node-1"`, `null`, 1),
		"ips that are null":                 serverJSON(1, `{"id":"n","type":"nic","properties":{"lan":2,"ips":null}}`),
		"no metadata":                       strings.Replace(serverJSON(1), `"metadata":{"state":"AVAILABLE"},`, ``, 1),
		"a server that is BUSY":             strings.Replace(serverJSON(1), "AVAILABLE", "BUSY", 1),
		"an invalid address on another LAN": serverJSON(1, nicJSON("7", "rubbish")),
		"a date without a zone":             strings.Replace(serverJSON(1, nicJSON("2")), "03:04:05Z", "03:04:05", 1),
		"unknown fields":                    strings.Replace(serverJSON(1), `"metadata"`, `"novelty":[1],"metadata"`, 1),
		"an unknown state":                  strings.Replace(serverJSON(1), "AVAILABLE", "DREAMING", 1),
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := startCloud(t, serveFixed(serversJSON("", s), plainLANJSON))
			got, err := newTestClient(t, cfg).List(t.Context())
			if err != nil || len(got.Servers) != 1 || len(got.Invalid) != 0 {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// A nested list that is as long as the limit it echoes may be truncated.
func TestFullNICListMakesServerInvalid(t *testing.T) {
	for limit, bad := range map[string]bool{"2": true, "1": true, "3": false, "0": false, "null": false} {
		s := strings.Replace(
			serverJSON(1, nicJSON("2", "10.0.0.1"), nicJSON("7")),
			`"type":"collection"`,
			`"type":"collection","limit":`+limit,
			1,
		)
		cfg, _ := startCloud(t, serveFixed(serversJSON("", s), plainLANJSON))
		got, err := newTestClient(t, cfg).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if reason := got.Invalid[testServerID(1)]; bad != strings.Contains(reason, "list of NICs is full") ||
			bad == (len(got.Servers) == 1) {
			t.Errorf("limit %s: got %v", limit, got)
		}
	}
}
