package ionosapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	ionoscloud "github.com/ionos-cloud/sdk-go/v6"
)

const dc = "aaaaaaaa-0000-4000-8000-000000000001"

func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// start runs an emulator of a datacenter with n servers on LAN 2, and the real SDK's client of it.
func start(t *testing.T, n int) (*Emulator, *ionoscloud.APIClient) {
	t.Helper()
	d := Datacenter{
		ID:   dc,
		LANs: []LAN{{ID: 2, Name: "private", IPv4CIDR: "10.0.0.0/16", Failover: []Failover{{IP: "10.0.9.9", NIC: "n"}}}},
	}
	for i := range n {
		d.Servers = append(d.Servers, Server{ID: uuid(i), Name: fmt.Sprintf("node-%03d", i), NICs: []NIC{
			{
				LAN:   2,
				IPs:   []string{netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i%250 + 10)}).String()},
				IPv6s: []string{fmt.Sprintf("2001:db8::%d", i+1)},
			},
			{LAN: 1, IPs: []string{"192.0.2.1"}},
		}})
	}
	cloud := NewCloud()
	if err := cloud.Load(State{[]Datacenter{d}}); err != nil {
		t.Fatal(err)
	}
	e, err := Start(Options{Cloud: cloud, SideDoor: "127.0.0.1:0", Token: func() (string, error) { return "t0ken\n", nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e, sdk(e, "t0ken")
}

func sdk(e *Emulator, token string) *ionoscloud.APIClient {
	cfg := ionoscloud.NewConfiguration("", "", token, e.URL())
	cfg.MaxRetries = 1
	cfg.HTTPClient = plain(e)
	return ionoscloud.NewAPIClient(cfg)
}

func plain(e *Emulator) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(e.CA())
	return &http.Client{
		Timeout:       time.Minute, // far beyond a busy machine
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func list(t *testing.T, c *ionoscloud.APIClient, depth, limit, offset int32) (ionoscloud.Servers, *ionoscloud.APIResponse, error) {
	t.Helper()
	return c.ServersApi.DatacentersServersGet(t.Context(), dc).Depth(depth).Limit(limit).Offset(offset).OrderBy("name").Execute()
}

func fault(t *testing.T, e *Emulator, f Fault) {
	t.Helper()
	if _, err := e.Cloud.AddFault(f); err != nil {
		t.Fatal(err)
	}
}

// sent calls then when a request of the context has been sent.
func sent(ctx context.Context, then func()) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { then() }})
}

func TestTheSDKReadsServersWithTheirNICs(t *testing.T) {
	e, c := start(t, 3)
	got, resp, err := list(t, c, 3, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	if *got.Id != dc+"/servers" || *got.Type != "collection" || len(*got.Items) != 3 || got.Links.Next != nil {
		t.Errorf("got %s %s, %d items, next %v", *got.Id, *got.Type, len(*got.Items), got.Links.Next)
	}
	s := (*got.Items)[1]
	if *s.Id != uuid(1) || *s.Properties.Name != "node-001" || *s.Metadata.State != "AVAILABLE" || *s.Properties.VmState != "RUNNING" {
		t.Errorf("got server %+v", s)
	}
	n := (*s.Entities.Nics.Items)[0]
	if *n.Properties.Lan != 2 || (*n.Properties.Ips)[0] != "10.0.0.11" || (*n.Properties.Ipv6Ips)[0] != "2001:db8::2" ||
		*n.Metadata.State != "AVAILABLE" {
		t.Errorf("got NIC %+v", *n.Properties)
	}
	for _, h := range []string{"X-RateLimit-Remaining", "X-RateLimit-Limit", "X-RateLimit-Burst"} {
		if resp.Header.Get(h) == "" {
			t.Errorf("no %s", h)
		}
	}
	if e.Cloud.Asked() != 1 || e.Cloud.Requests()[0].Status != 200 {
		t.Errorf("journal: %+v", e.Cloud.Requests())
	}
}

func TestDepthDecidesHowFarNICsAreTold(t *testing.T) {
	_, c := start(t, 1)
	for depth, want := range []string{"a reference", "no items", "references", "properties"} {
		got, _, err := list(t, c, int32(depth), 10, 0)
		if err != nil {
			t.Fatal(err)
		}
		said := "a reference"
		if s := (*got.Items)[0]; s.Properties != nil {
			said = "no items"
			if items := s.Entities.Nics.Items; items != nil {
				said = "references"
				if (*items)[0].Properties != nil {
					said = "properties"
				}
			}
		}
		if said != want {
			t.Errorf("depth %d: got %s, want %s", depth, said, want)
		}
	}
}

func TestPagesCarryALinkWhileMoreRemain(t *testing.T) {
	_, c := start(t, 5)
	for _, p := range []struct {
		offset int32
		ids    []string
		more   bool
	}{{0, []string{uuid(0), uuid(1)}, true}, {2, []string{uuid(2), uuid(3)}, true}, {3, []string{uuid(3), uuid(4)}, false}, {4, []string{uuid(4)}, false}, {9, nil, false}} {
		got, _, err := list(t, c, 3, 2, p.offset)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, s := range *got.Items {
			ids = append(ids, *s.Id)
		}
		if !slices.Equal(ids, p.ids) || (got.Links.Next != nil) != p.more || *got.Offset != float32(p.offset) {
			t.Errorf("offset %d: got %v, next %v", p.offset, ids, got.Links.Next)
		}
	}
	if _, _, err := list(t, c, 3, 20000, 0); err == nil {
		t.Error("a limit beyond 10000 is accepted")
	}
}

func TestTheSDKReadsDatacenterAndLAN(t *testing.T) {
	e, c := start(t, 2)
	ctx := t.Context()
	d, _, err := c.DataCentersApi.DatacentersFindById(ctx, dc).Execute()
	if err != nil || *d.Properties.Location != "de/fra" {
		t.Errorf("datacenter: %v", err)
	}
	lan, _, err := c.LANsApi.DatacentersLansFindById(ctx, dc, "2").Execute()
	if err != nil || *lan.Id != "2" || *(*lan.Properties.IpFailover)[0].Ip != "10.0.9.9" {
		t.Errorf("LAN: %v", err)
	}
	_, resp, err := c.LANsApi.DatacentersLansFindById(ctx, dc, "9").Execute()
	var generic ionoscloud.GenericOpenAPIError
	if !errors.As(err, &generic) || resp.StatusCode != 404 {
		t.Errorf("a LAN that is missing: %v", err)
	}
	if err := e.Cloud.RemoveServer(dc, uuid(1)); err != nil {
		t.Error(err)
	}
	if got, _, _ := list(t, c, 3, 10, 0); len(*got.Items) != 1 {
		t.Error("the removed server is still there")
	}
}

func TestTheTokenComesBeforeAllElse(t *testing.T) {
	e, _ := start(t, 1)
	fault(t, e, Fault{Kind: ServerError})
	_, resp, err := list(t, sdk(e, "wrong"), 3, 10, 0)
	if err == nil || resp.StatusCode != 401 || !strings.Contains(string(resp.Payload), `"errorCode":"315"`) {
		t.Errorf("got %v", err)
	}
	if len(e.Cloud.Faults()) != 1 {
		t.Error("the fault was used up")
	}
}

func TestAServerShowsItsNICLate(t *testing.T) {
	e, c := start(t, 0)
	now := time.Now()
	e.Cloud.now = func() time.Time { return now }
	if _, err := e.Cloud.PutServer(dc, Server{ID: uuid(1), NICs: []NIC{{LAN: 2, After: Duration(3 * time.Second)}}}); err != nil {
		t.Fatal(err)
	}
	nics := func() int {
		got, _, err := list(t, c, 3, 10, 0)
		if err != nil {
			t.Fatal(err)
		}
		return len(*(*got.Items)[0].Entities.Nics.Items)
	}
	if nics() != 0 {
		t.Error("the NIC is there at once")
	}
	if err := e.Cloud.AddNIC(dc, uuid(1), NIC{LAN: 1}); err != nil { // must not start the wait anew
		t.Fatal(err)
	}
	now = now.Add(3 * time.Second)
	if nics() != 2 {
		t.Error("the NIC does not appear")
	}
}

func TestTheSideDoorSwitchesStateAndFaults(t *testing.T) {
	e, c := start(t, 2)
	do := func(method, path, body string, want int) string {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), method, e.SideDoorURL()+path, strings.NewReader(body))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != want {
			t.Errorf("%s %s: got %d %s, want %d", method, path, resp.StatusCode, b, want)
		}
		return string(b)
	}
	do("PUT", "/lab/state", `{"datacentres":[]}`, 400) // a typing mistake
	do("POST", "/lab/faults", `{"kind":"quantum"}`, 400)
	do("POST", "/lab/faults", `{"kind":"503","count":1}`, 200)
	if _, _, err := list(t, c, 3, 10, 0); err == nil {
		t.Error("the fault has no effect")
	}
	do("POST", "/lab/faults", `{"kind":"500","wait":"1s"}`, 200)
	do("DELETE", "/lab/faults/2", "", 204)
	do("DELETE", "/lab/faults/2", "", 404)
	if got, _, err := list(t, c, 3, 10, 0); err != nil || len(*got.Items) != 2 {
		t.Errorf("got %v", err)
	}
	state := do("GET", "/lab/state", "", 200)
	do("PUT", "/lab/state", `{"datacenters":[]}`, 204)
	if _, _, err := list(t, c, 3, 10, 0); err == nil {
		t.Error("the datacenter is still there")
	}
	do("PUT", "/lab/state", state, 204)
	if got, _, err := list(t, c, 3, 10, 0); err != nil || len(*got.Items) != 2 {
		t.Errorf("after the state went out and in: %v", err)
	}
	if !strings.Contains(do("GET", "/lab/requests", "", 200), `"status": 503`) {
		t.Error("the journal lacks the 503")
	}
}
