// Package ionosapi is an emulator of the part of the IONOS Cloud API v6 that Slicefeed
// reads: over HTTPS, with the real one's envelopes, and with faults that can be switched
// on. It promises that a client which works here has met the real one's oddities; it
// refuses everything that changes a cloud over the API itself: state is edited by
// methods of Cloud, or through the side door.
package ionosapi

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// State is a whole cloud, in the form of the side door and of state files.
type State struct {
	Datacenters []Datacenter `json:"datacenters"`
}

// Datacenter holds LANs and servers.
type Datacenter struct {
	ID       string   `json:"id"` // UUID
	Name     string   `json:"name,omitempty"`
	Location string   `json:"location,omitempty"` // default: de/fra
	LANs     []LAN    `json:"lans,omitempty"`
	Servers  []Server `json:"servers,omitempty"`
}

// LAN is a network of a datacenter.
type LAN struct {
	ID       int        `json:"id"`
	Name     string     `json:"name,omitempty"`
	Public   bool       `json:"public,omitempty"`
	IPv4CIDR string     `json:"ipv4Cidr,omitempty"`
	IPv6CIDR string     `json:"ipv6Cidr,omitempty"`
	Failover []Failover `json:"failover,omitempty"`
}

// Failover is a failover group: an address that several NICs bear, and its present master.
type Failover struct {
	IP  string `json:"ip"`
	NIC string `json:"nic,omitempty"`
}

// Server is a machine. State is that of its record (AVAILABLE, BUSY), VMState that of the machine.
type Server struct {
	ID      string    `json:"id,omitempty"` // UUID; default: a random one
	Name    string    `json:"name,omitempty"`
	State   string    `json:"state,omitempty"`   // default: AVAILABLE
	VMState string    `json:"vmState,omitempty"` // default: RUNNING
	Zone    string    `json:"zone,omitempty"`    // default: AUTO
	NICs    []NIC     `json:"nics,omitempty"`
	Created time.Time `json:"created,omitzero"` // default: when it is put
}

// NIC is a network interface of a server.
type NIC struct {
	ID    string   `json:"id,omitempty"` // UUID; default: a random one
	Name  string   `json:"name,omitempty"`
	MAC   string   `json:"mac,omitempty"` // default: made of the ID
	LAN   int      `json:"lan"`
	IPs   []string `json:"ips,omitempty"`
	IPv6s []string `json:"ipv6Ips,omitempty"`
	State string   `json:"state,omitempty"` // default: AVAILABLE

	// After hides the NIC for this long after it is put: the cloud shows a new
	// server's NIC minutes late.
	After Duration `json:"after,omitempty"`

	visible time.Time
}

// ErrUnknown is wrapped by the errors about a datacenter, LAN or server that is not there.
var ErrUnknown = errors.New("no such thing")

// Cloud is the state that an emulator shows, and its faults. Safe for concurrent use;
// what goes in and comes out is copied.
type Cloud struct {
	mu       sync.Mutex
	dcs      []Datacenter
	faults   []*Fault
	next     int // number of the next fault
	requests []Request
	asked    int
	now      func() time.Time
}

// NewCloud returns a cloud without datacenters.
func NewCloud() *Cloud { return &Cloud{now: time.Now} }

// Load replaces all datacenters; faults stay.
func (c *Cloud) Load(s State) error {
	fresh := Cloud{now: c.now}
	for _, dc := range s.Datacenters {
		if err := fresh.PutDatacenter(dc); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dcs = fresh.dcs
	return nil
}

// State returns all datacenters.
func (c *Cloud) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := State{Datacenters: []Datacenter{}}
	for _, dc := range c.dcs {
		s.Datacenters = append(s.Datacenters, dc.clone())
	}
	return s
}

// PutDatacenter adds a datacenter with all it holds, or replaces one.
func (c *Cloud) PutDatacenter(dc Datacenter) error {
	dc = dc.clone()
	if dc.ID = strings.ToLower(dc.ID); dc.ID == "" || strings.Contains(dc.ID, "/") {
		return fmt.Errorf("datacenter %q: expected a UUID", dc.ID)
	}
	dc.Name, dc.Location = orElse(dc.Name, "lab"), orElse(dc.Location, "de/fra")
	ids := make(map[string]bool)
	for i := range dc.Servers {
		dc.Servers[i] = c.complete(dc.Servers[i])
		if ids[dc.Servers[i].ID] {
			return fmt.Errorf("server %s of datacenter %s is there twice", dc.Servers[i].ID, dc.ID)
		}
		ids[dc.Servers[i].ID] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, err := c.datacenter(dc.ID); err == nil {
		*old = dc
	} else {
		c.dcs = append(c.dcs, dc)
	}
	return nil
}

// PutServer adds a server, or replaces the one of that ID; what is left out gets its
// default. It returns the server as it is now.
func (c *Cloud) PutServer(dc string, s Server) (Server, error) {
	s = c.complete(s.clone())
	return s.clone(), c.edit(dc, func(d *Datacenter) error {
		if i := slices.IndexFunc(d.Servers, func(o Server) bool { return o.ID == s.ID }); i >= 0 {
			s.Created = d.Servers[i].Created
			d.Servers[i] = s
		} else {
			d.Servers = append(d.Servers, s)
		}
		return nil
	})
}

// RemoveServer removes a server.
func (c *Cloud) RemoveServer(dc, id string) error {
	return c.edit(dc, func(d *Datacenter) error {
		return remove(&d.Servers, func(s Server) bool { return s.ID == strings.ToLower(id) }, "server", id)
	})
}

// AddNIC gives a server a NIC more.
func (c *Cloud) AddNIC(dc, server string, nic NIC) error {
	return c.edit(dc, func(d *Datacenter) error {
		i := slices.IndexFunc(d.Servers, func(s Server) bool { return s.ID == strings.ToLower(server) })
		if i < 0 {
			return fmt.Errorf("server %s of datacenter %s: %w", server, dc, ErrUnknown)
		}
		s := d.Servers[i].clone()
		s.NICs = append(s.NICs, nic)
		d.Servers[i] = c.complete(s)
		return nil
	})
}

func (c *Cloud) edit(dc string, change func(*Datacenter) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, err := c.datacenter(dc)
	if err != nil {
		return err
	}
	return change(d)
}

func (c *Cloud) datacenter(id string) (*Datacenter, error) {
	i := slices.IndexFunc(c.dcs, func(d Datacenter) bool { return d.ID == strings.ToLower(id) })
	if i < 0 {
		return nil, fmt.Errorf("datacenter %s: %w", id, ErrUnknown)
	}
	return &c.dcs[i], nil
}

// seen is a datacenter as it looks now, without the NICs that are still to appear.
func (c *Cloud) seen(dc string) (Datacenter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, err := c.datacenter(dc)
	if err != nil {
		return Datacenter{}, err
	}
	out, now := d.clone(), c.now()
	for i := range out.Servers {
		out.Servers[i].NICs = slices.DeleteFunc(out.Servers[i].NICs, func(n NIC) bool { return n.visible.After(now) })
	}
	return out, nil
}

func (c *Cloud) complete(s Server) Server {
	s.ID = strings.ToLower(orElse(s.ID, newID()))
	s.State, s.VMState, s.Zone = orElse(s.State, "AVAILABLE"), orElse(s.VMState, "RUNNING"), orElse(s.Zone, "AUTO")
	if s.Created.IsZero() {
		s.Created = c.now()
	}
	for i := range s.NICs {
		n := &s.NICs[i]
		n.ID, n.State = orElse(n.ID, newID()), orElse(n.State, "AVAILABLE")
		n.MAC = orElse(n.MAC, macOf(n.ID))
		if n.visible.IsZero() && n.After > 0 {
			n.visible = c.now().Add(time.Duration(n.After))
		}
	}
	return s
}

func (d Datacenter) clone() Datacenter {
	d.LANs = slices.Clone(d.LANs)
	for i := range d.LANs {
		d.LANs[i].Failover = slices.Clone(d.LANs[i].Failover)
	}
	d.Servers = slices.Clone(d.Servers)
	for i := range d.Servers {
		d.Servers[i] = d.Servers[i].clone()
	}
	return d
}

func (s Server) clone() Server {
	s.NICs = slices.Clone(s.NICs)
	for i := range s.NICs {
		s.NICs[i].IPs, s.NICs[i].IPv6s = slices.Clone(s.NICs[i].IPs), slices.Clone(s.NICs[i].IPv6s)
	}
	return s
}

func remove[T any](list *[]T, is func(T) bool, kind, id string) error {
	before := len(*list)
	if *list = slices.DeleteFunc(*list, is); len(*list) == before {
		return fmt.Errorf("%s %s: %w", kind, id, ErrUnknown)
	}
	return nil
}

func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// macOf makes an address in the range that the cloud uses out of the end of the ID.
func macOf(id string) string {
	hex := strings.Map(func(r rune) rune {
		if strings.ContainsRune("0123456789abcdef", r) {
			return r
		}
		return -1
	}, strings.ToLower(id))
	hex = "00000000" + hex
	hex = hex[len(hex)-8:]
	return "02:01:" + hex[:2] + ":" + hex[2:4] + ":" + hex[4:6] + ":" + hex[6:]
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// Duration is a time.Duration that JSON writes as people do: "1.5s".
type Duration time.Duration

// MarshalText writes it as time.Duration does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}
