package pair

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// What the cloud holds.
const (
	Datacenter = "7d2f6e1a-9c34-4b58-8f0e-1a6b3c5d7e90"
	PublicLAN  = 1
	PrivateLAN = 2 // of the workers
	otherLAN   = 3 // of machines that are none of our business
)

const (
	cloudPort = 8443
	sidePort  = 8081
)

// CloudOptions describe the cloud.
type CloudOptions struct {
	OtherServers int // beside the workers, in the same datacenter
	PageLimit    int // most servers in one answer, whatever the client asks for; 0: 1000
}

// Cloud is the emulator of the cloud API, with the state and faults of its embedded part.
type Cloud struct {
	*ionosapi.Cloud

	URL, SideDoor string
	CAFile, Token string // Token is the first one; see SetToken

	emulator *ionosapi.Emulator
	accepted atomic.Pointer[string]
}

func startCloud(dir string, options CloudOptions) (*Cloud, error) {
	c := &Cloud{Cloud: ionosapi.NewCloud(), Token: "lab-token", CAFile: filepath.Join(dir, "ca.crt")}
	c.accepted.Store(&c.Token)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := c.PutDatacenter(datacenter(options.OtherServers)); err != nil {
		return nil, err
	}
	emulator, err := ionosapi.Start(ionosapi.Options{
		Cloud: c.Cloud, Listen: port(CloudAddress, cloudPort), SideDoor: port(CloudAddress, sidePort),
		Token:     func() (string, error) { return *c.accepted.Load(), nil },
		PageLimit: options.PageLimit,
	})
	if err != nil {
		return nil, fmt.Errorf("start the cloud: %w", err)
	}
	c.emulator, c.URL, c.SideDoor = emulator, emulator.URL(), emulator.SideDoorURL()
	if err := pki.WriteFile(c.CAFile, emulator.CA()); err != nil {
		return nil, errors.Join(err, emulator.Close())
	}
	return c, nil
}

// SetToken makes the cloud accept this token alone, and returns the one that it accepted
// before.
func (c *Cloud) SetToken(token string) (before string) { return *c.accepted.Swap(&token) }

func (c *Cloud) stop() error { return c.emulator.Close() }

// datacenter has LANs and other people's servers, some of which sort before the workers
// by name and some after.
func datacenter(others int) ionosapi.Datacenter {
	dc := ionosapi.Datacenter{ID: Datacenter, Name: "production", Location: "de/fra", LANs: []ionosapi.LAN{
		{ID: PublicLAN, Name: "internet", Public: true},
		{ID: PrivateLAN, Name: "workers", IPv4CIDR: Subnet},
		{ID: otherLAN, Name: "offices", IPv4CIDR: "10.7.0.0/16"},
	}}
	for n := range others {
		kind := []string{"archive", "mail", "warehouse"}[n%3]
		dc.Servers = append(dc.Servers, ionosapi.Server{
			Name: fmt.Sprintf("%s-%03d", kind, n+1),
			NICs: []ionosapi.NIC{{LAN: otherLAN, IPs: []string{fmt.Sprintf("10.7.%d.%d", n/200, 10+n%200)}}},
		})
	}
	return dc
}

// server is a worker's machine as the cloud shows it. Its private NIC appears that much later.
func server(id, name string, public, private netip.Addr, after time.Duration) ionosapi.Server {
	s := ionosapi.Server{ID: id, Name: name, NICs: []ionosapi.NIC{{Name: "public", LAN: PublicLAN, IPs: []string{public.String()}}}}
	if private.IsValid() {
		s.NICs = append(s.NICs, ionosapi.NIC{
			Name: "private", LAN: PrivateLAN, IPs: []string{private.String()}, After: ionosapi.Duration(after),
		})
	}
	return s
}
