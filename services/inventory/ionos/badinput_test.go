package ionos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

// cloudRoster is a client with the roster that uses its listings.
type cloudRoster struct {
	*Client

	t        *testing.T
	roster   *roster.Roster
	now      time.Time
	listings int
}

func (s *cloudRoster) candidate(name string, server int) roster.Node {
	return roster.Node{Name: name, UID: name, ProviderID: "ionos://" + testServerID(server), State: roster.Ready}
}

// poll advances time by a poll interval. Kubernetes adds the nodes, and its responses are valid.
func (s *cloudRoster) poll(added ...roster.Node) {
	s.now = s.now.Add(time.Minute)
	for range 4 {
		s.roster.Apply(s.now, roster.Input{Source: roster.Update{Changed: added, LastContact: s.now, Verified: 1}})
		added = nil
		actions := s.roster.NextActions(s.now)
		if actions.Verify != roster.NoVerification {
			s.roster.Apply(
				s.now,
				roster.Input{Verification: &roster.VerificationResult{StartedAt: s.now, Mode: actions.Verify, Number: 1}},
			)
		}
		if actions.List {
			s.listings++
			l, err := s.List(s.t.Context())
			after, _ := RetryAfter(err)
			s.roster.Apply(s.now, roster.Input{Listing: &roster.ListingResult{StartedAt: s.now, Listing: l, Err: err, RetryAfter: after}})
		}
	}
}

func (s *cloudRoster) nodes() []string {
	var out []string
	for _, m := range s.roster.Members(roster.Filter{}) {
		if m.IsPublished() {
			out = append(out, strings.Join(append([]string{m.Name}, addressStrings(m.Addresses)...), " "))
		}
	}
	slices.Sort(out)
	return out
}

func addressStrings(addrs []netip.Addr) []string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}

// badInput is a fault of the cloud after it listed the servers of the nodes a and b. At the same time a
// Node c appears, whose server is in the correct list.
type badInput struct {
	name          string
	fault         http.HandlerFunc
	prepare       func(*cloudRoster)
	wantAddresses roster.SyncState
	wantReason    string                // in the reason
	wantOmission  roster.OmissionReason // why c is left out; 0: it is listed
	wantNodes     []string              // that are listed; none: a and b as they were, and c unless it is left out
}

// badInputs are the rows of the table in docs/use/sources/ionos.md, by name.
func badInputs() []badInput {
	one, two, three := serverJSON(
		1,
		nicJSON("2", "10.0.0.1"),
	), serverJSON(
		2,
		nicJSON("2", "10.0.0.2"),
	), serverJSON(
		3,
		nicJSON("2", "10.0.0.3"),
	)
	all := []string{one, two, three}
	complete := serversJSON("", all...)
	respondWith := func(servers string) http.HandlerFunc { return serveFixed(servers, plainLANJSON).ServeHTTP }
	status := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { respond(w, status, body) }
	}
	const failed, later = roster.Degraded, roster.NotResolvedYet
	return []badInput{
		// unreachable, slow
		{name: "the connection is refused", prepare: func(s *cloudRoster) {
			s.transport.base = refusedTransport{}
		}, wantAddresses: failed, wantReason: "connection refused", wantOmission: later},
		{
			name: "the connection breaks", fault: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			wantAddresses: failed, wantReason: "stream error", wantOmission: later,
		},
		{
			name: "the response does not come in time", prepare: func(s *cloudRoster) { s.timeout = 30 * time.Millisecond },
			fault:         func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			wantAddresses: failed, wantReason: "no complete response within", wantOmission: later,
		},
		{
			name: "the response stalls halfway", prepare: func(s *cloudRoster) { s.timeout = 30 * time.Millisecond },
			fault: func(w http.ResponseWriter, r *http.Request) {
				respond(w, 200, complete[:len(complete)/2])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}, wantAddresses: failed, wantReason: "no complete response within", wantOmission: later,
		},
		{name: "the certificate is not trusted", prepare: func(s *cloudRoster) {
			raw := s.transport.base.(*http.Transport)
			raw.CloseIdleConnections()
			raw.TLSClientConfig.RootCAs = nil
		}, wantAddresses: failed, wantReason: "certificate", wantOmission: later},

		// rejected
		{
			name:          "the token is rejected",
			fault:         status(401, `{"httpStatus":401,"messages":[{"errorCode":"315","message":"Unauthorized"}]}`),
			wantAddresses: failed,
			wantReason:    "not accepted (HTTP 401)",
			wantOmission:  later,
		},
		{name: "the token is rejected midway", fault: func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/lans/2") {
				respond(w, 401, "{}")
				return
			}
			respond(w, 200, complete)
		}, wantAddresses: failed, wantReason: "not accepted (HTTP 401)", wantOmission: later},
		{name: "the token file is missing", prepare: func(s *cloudRoster) {
			s.transport.token.File = "/nowhere/token"
		}, wantAddresses: failed, wantReason: "/nowhere/token", wantOmission: later},
		{name: "the cloud limits the rate of requests", fault: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "600")
			respond(w, 429, `{"httpStatus":429,"messages":[{"message":"slow down"}]}`)
		}, wantAddresses: failed, wantReason: "HTTP 429", wantOmission: later},
		{
			name:          "the cloud has an internal error",
			fault:         status(502, "<html>Bad Gateway</html>"),
			wantAddresses: failed,
			wantReason:    "HTTP 502",
			wantOmission:  later,
		},
		{
			name:          "the datacenter or the LAN does not exist",
			fault:         status(404, `{"httpStatus":404,"messages":[{"message":"Resource does not exist"}]}`),
			wantAddresses: failed,
			wantReason:    "HTTP 404",
			wantOmission:  later,
		},
		{name: "the response is a redirect", fault: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.invalid/", http.StatusTemporaryRedirect)
		}, wantAddresses: failed, wantReason: "redirect", wantOmission: later},

		// malformed
		{
			name:          "the JSON is truncated",
			fault:         respondWith(complete[:len(complete)-40]),
			wantAddresses: failed,
			wantReason:    "invalid response",
			wantOmission:  later,
		},
		{name: "the response is not JSON", fault: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<html>Maintenance</html>")
		}, wantAddresses: failed, wantReason: "invalid response", wantOmission: later},
		{
			name:          "a LAN's number is a string",
			fault:         respondWith(strings.Replace(complete, `"lan":2`, `"lan":"2"`, 1)),
			wantAddresses: failed,
			wantReason:    "invalid response",
			wantOmission:  later,
		},
		{
			name:          "a date has an offset instead of the Z",
			fault:         respondWith(strings.Replace(complete, "03:04:05Z", "03:04:05+00:00", 1)),
			wantAddresses: failed,
			wantReason:    "invalid response",
			wantOmission:  later,
		},
		{
			name:          "a type is unknown",
			fault:         respondWith(strings.Replace(complete, `"type":"nic"`, `"type":"quantum"`, 1)),
			wantAddresses: failed,
			wantReason:    "invalid response",
			wantOmission:  later,
		},
		{name: "the response is too long", prepare: func(s *cloudRoster) {
			s.transport.limit = 500
		}, wantAddresses: failed, wantReason: "longer than 500 bytes", wantOmission: later},

		// partly valid
		{
			name:          "one server's data is invalid",
			fault:         respondWith(serversJSON("", strings.Replace(one, `"10.0.0.1"`, `"10.0.0.256"`, 1), two, three)),
			wantAddresses: failed,
			wantReason:    "invalid data for the servers of 1 node",
		},
		{
			name:          "the new server's data is invalid",
			fault:         respondWith(serversJSON("", one, two, strings.Replace(three, `"lan":2,`, ``, 1))),
			wantAddresses: failed,
			wantReason:    "invalid data for the servers of 1 node",
			wantOmission:  roster.InvalidRecord,
		},
		{
			name: "the pages are inconsistent", prepare: func(s *cloudRoster) { s.withPages(2) },
			fault:         (&pager{servers: serverNumbers(10), before: func(_ int, p *pager) { p.servers = p.servers[1:] }}).ServeHTTP,
			wantAddresses: failed, wantReason: "inconsistent pages", wantOmission: later,
		},
		{
			name:          "a page repeats the previous one",
			prepare:       func(s *cloudRoster) { s.withPages(2) },
			fault:         respondWith(serversJSON("next", one, two)),
			wantAddresses: failed,
			wantReason:    "inconsistent pages",
			wantOmission:  later,
		},
		{name: "a page ends at a lower limit of the cloud, without a link", fault: func(w http.ResponseWriter, r *http.Request) {
			offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
			page := serversJSON("", all[min(offset, 3):min(offset+2, 3)]...)
			serveFixed(strings.Replace(page, `"items"`, `"limit":2,"items"`, 1), plainLANJSON).ServeHTTP(w, r)
		}, wantAddresses: roster.Synced},
		{
			name: "a page echoes an impossible limit", fault: respondWith(strings.Replace(complete, `"items"`, `"limit":0,"items"`, 1)),
			wantAddresses: failed, wantReason: "echoes the limit 0", wantOmission: later,
		},
		{
			name:          "a failover address is invalid",
			fault:         serveFixed(complete, `{"id":"2","type":"lan","properties":{"ipFailover":[{}]}}`).ServeHTTP,
			wantAddresses: failed,
			wantReason:    "failover",
			wantOmission:  later,
		},
		{
			name:          "the new server has no NIC yet",
			fault:         respondWith(serversJSON("", one, two, serverJSON(3))),
			wantAddresses: roster.Synced,
			wantOmission:  roster.NoAddressOnLAN,
		},
		{
			name:          "the new NIC reports 0.0.0.0, a loopback or a link-local address",
			fault:         respondWith(serversJSON("", one, two, serverJSON(3, nicJSON("2", "0.0.0.0", "127.0.0.1", "169.254.0.1")))),
			wantAddresses: roster.Synced,
			wantOmission:  roster.NoAddressOnLAN,
		},
		{
			name:          "the new NIC has no address yet",
			fault:         respondWith(serversJSON("", one, two, serverJSON(3, nicJSON("2")))),
			wantAddresses: roster.Synced,
			wantOmission:  roster.NoAddressOnLAN,
		},
		{name: "a server is BUSY", fault: respondWith(strings.ReplaceAll(complete, "AVAILABLE", "BUSY")), wantAddresses: roster.Synced},

		// empty
		{
			name:          "the response is empty",
			fault:         status(200, ""),
			wantAddresses: failed,
			wantReason:    "unexpected end of JSON input",
			wantOmission:  later,
		},
		{
			name:          "the response is 204",
			fault:         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
			wantAddresses: failed,
			wantReason:    "without type or id",
			wantOmission:  later,
		},
		{
			name:          "the response is an error in a 200",
			fault:         status(200, `{"httpStatus":500,"messages":[{"message":"oops"}]}`),
			wantAddresses: failed,
			wantReason:    "without type or id",
			wantOmission:  later,
		},
		{
			name:          "the list of servers is null",
			fault:         respondWith(`{"id":"` + testDatacenter + `/servers","type":"collection","items":null}`),
			wantAddresses: failed,
			wantReason:    "without items",
			wantOmission:  later,
		},
		{
			name:          "the list of servers is empty",
			fault:         respondWith(serversJSON("")),
			wantAddresses: roster.Synced,
			wantOmission:  roster.NotFoundInIONOS,
		},
		{
			name:          "no server has a NIC any more",
			fault:         respondWith(serversJSON("", serverJSON(1), serverJSON(2), serverJSON(3))),
			wantAddresses: roster.Synced,
			wantOmission:  roster.NoAddressOnLAN,
		},

		// contradictory
		{
			name:          "the response is about another object",
			fault:         respondWith(strings.Replace(complete, testDatacenter, testServerID(9), 1)),
			wantAddresses: failed,
			wantReason:    "want collection",
			wantOmission:  later,
		},
		{
			name:          "a server is listed twice",
			fault:         respondWith(serversJSON("", one, two, three, one)),
			wantAddresses: failed,
			wantReason:    "appears twice",
			wantOmission:  later,
		},
		{
			name:          "a known address is on two servers",
			fault:         respondWith(serversJSON("", one, two, serverJSON(3, nicJSON("2", "10.0.0.1")))),
			wantAddresses: roster.Synced,
			wantOmission:  roster.SharedAddress,
		},
		{
			name:          "a known address is a failover address now",
			fault:         serveFixed(complete, `{"id":"2","type":"lan","properties":{"ipFailover":[{"ip":"10.0.0.1"}]}}`).ServeHTTP,
			wantAddresses: roster.Synced,
		},
		{
			name:          "the new server has a failover address only",
			fault:         serveFixed(complete, `{"id":"2","type":"lan","properties":{"ipFailover":[{"ip":"10.0.0.3"}]}}`).ServeHTTP,
			wantAddresses: roster.Synced,
			wantOmission:  roster.SharedAddress,
		},
		{name: "failover addresses come before a server's own", fault: serveFixed(
			serversJSON(
				"",
				serverJSON(1, nicJSON("2", "10.0.0.99", "10.0.0.1")),
				serverJSON(2, nicJSON("2", "10.0.0.99", "10.0.0.2")),
				serverJSON(3, nicJSON("2", "10.0.0.99", "10.0.0.3")),
			),
			`{"id":"2","type":"lan","properties":{"ipFailover":[{"ip":"10.0.0.99"}]}}`,
		).ServeHTTP, wantAddresses: roster.Synced},
		{
			name:          "the new server has two candidate addresses",
			fault:         respondWith(serversJSON("", one, two, serverJSON(3, nicJSON("2", "10.0.0.3", "10.0.0.4")))),
			wantAddresses: roster.Synced,
		},
		{
			name:          "the new server's address is outside the subnet",
			fault:         respondWith(serversJSON("", one, two, serverJSON(3, nicJSON("2", "192.168.7.3")))),
			wantAddresses: roster.Synced,
			wantOmission:  roster.OutsideSubnet,
		},
		{
			name:          "a server's only address has changed",
			fault:         respondWith(serversJSON("", serverJSON(1, nicJSON("2", "10.0.0.7")), two, three)),
			wantAddresses: roster.Synced,
			wantNodes:     []string{"a 10.0.0.7", "b 10.0.0.2", "c 10.0.0.3"},
		},
		{
			name:          "the replacement has the address of an old Node that still exists",
			fault:         respondWith(serversJSON("", two, serverJSON(3, nicJSON("2", "10.0.0.1")))),
			wantAddresses: roster.Synced,
			wantNodes:     []string{"b 10.0.0.2", "c 10.0.0.1"},
		},
		{
			name:          "all servers have one name",
			fault:         respondWith(regexp.MustCompile(`node-\d`).ReplaceAllString(complete, "node")),
			wantAddresses: roster.Synced,
		},
	}
}

// refusedTransport is a network without a listener.
type refusedTransport struct{}

func (refusedTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("dial tcp 192.0.2.1:443: connect: %s", "connection refused")
}

func TestBadInput(t *testing.T) {
	for _, tc := range badInputs() {
		t.Run(tc.name, func(t *testing.T) {
			fault := false
			good := serveFixed(
				serversJSON("", serverJSON(1, nicJSON("2", "10.0.0.1")), serverJSON(2, nicJSON("2", "10.0.0.2"))),
				plainLANJSON,
			)
			cfg, _ := startCloud(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if fault && tc.fault != nil {
					tc.fault(w, r)
					return
				}
				good.ServeHTTP(w, r)
			}))
			s := &cloudRoster{Client: newTestClient(t, cfg), t: t, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
			s.roster = roster.New(roster.Config{Method: roster.ByCloud, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}})
			s.poll(s.candidate("a", 1), s.candidate("b", 2))
			known := []string{"a 10.0.0.1", "b 10.0.0.2"}
			if diff := cmp.Diff(known, s.nodes()); diff != "" {
				t.Fatal(diff)
			}

			fault = true
			if tc.prepare != nil {
				tc.prepare(s)
			}
			before := s.listings
			s.poll(s.candidate("c", 3))
			if s.listings == before {
				t.Fatal("the cloud was not listed")
			}
			want := tc.wantNodes
			if want == nil {
				want = known
				if tc.wantOmission == 0 {
					want = append(slices.Clone(known), "c 10.0.0.3")
				}
			}
			if diff := cmp.Diff(want, s.nodes()); diff != "" {
				t.Errorf("nodes: %s", diff)
			}
			status := s.roster.Status(s.now)
			if status.Membership.Sync != roster.Synced || status.Addresses.Sync != tc.wantAddresses ||
				!strings.Contains(status.Addresses.Reason, tc.wantReason) {
				t.Errorf(
					"membership %v, addresses %v, want %v with %q",
					status.Membership,
					status.Addresses,
					tc.wantAddresses,
					tc.wantReason,
				)
			}
			for _, m := range s.roster.Members(roster.Filter{}) {
				if m.Name == "c" && !m.IsPublished() && m.Omission.Reason != tc.wantOmission {
					t.Errorf("c is omitted with %v, want %s", m.Omission, tc.wantOmission)
				}
			}
		})
	}
}

func TestListsAllPairsOrNone(t *testing.T) {
	other := testServerID(99)
	of := func(body string) string { return strings.Replace(body, testDatacenter, other, 1) }
	for name, tc := range map[string]struct {
		servers string
		status  int
		want    string // of the error; empty: success
	}{
		"both succeed":                    {of(serversJSON("", serverJSON(2, nicJSON("2", "10.0.0.2"), nicJSON("3", "10.0.1.2")))), 200, ""},
		"the second fails":                {"{}", 503, "datacenter " + other + ": HTTP 503"},
		"both list the same server":       {of(serversJSON("", serverJSON(1, nicJSON("2", "10.0.0.2")))), 200, "server " + testServerID(1) + " is in datacenter " + testDatacenter},
		"the second returns the first's":  {serversJSON("", serverJSON(2)), 200, "want collection " + other},
		"the second's LAN does not exist": {of(serversJSON("")), 404, "HTTP 404"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newOfflineClient(
				t,
				Config{Pairs: []Pair{{testDatacenter, "2"}, {other, "3"}}},
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, lan, isLAN := strings.Cut(r.URL.Path, "/lans/")
					switch {
					case isLAN:
						respond(w, 200, `{"id":`+strconv.Quote(lan)+`,"type":"lan","properties":{}}`)
					case strings.Contains(r.URL.Path, other):
						respond(w, tc.status, tc.servers)
					default:
						respond(w, 200, serversJSON("", serverJSON(1, nicJSON("2", "10.0.0.1"), nicJSON("3", "10.0.1.1"))))
					}
				}),
			)
			got, err := c.List(context.Background())
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || got.Servers != nil {
					t.Errorf("got %v, %v; want %q", got, err, tc.want)
				}
				return
			}
			want := roster.Listing{Invalid: map[string]string{}, Servers: []roster.Server{
				{
					ID:         testServerID(1),
					Datacenter: testDatacenter,
					Name:       "node-1",
					NICs:       []roster.NIC{{ID: "nic-2-10.0.0.1", LAN: "2", Addresses: parseAddrs("10.0.0.1")}},
				},
				{
					ID:         testServerID(2),
					Datacenter: other,
					Name:       "node-2",
					NICs:       []roster.NIC{{ID: "nic-3-10.0.1.2", LAN: "3", Addresses: parseAddrs("10.0.1.2")}},
				},
			}}
			if diff := cmp.Diff(want, got, compareAddrs); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}
