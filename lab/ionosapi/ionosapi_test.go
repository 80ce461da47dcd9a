package ionosapi

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
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
