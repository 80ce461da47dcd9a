package ionosapi

import (
	"strconv"
	"time"
)

// What goes over the wire. Depth works as in the real API: a collection at depth 0 has
// references, at depth 1 its items' properties; a nested one is named but has no items at
// its item's level 0, references at level 1, and properties from level 2 on.

type object map[string]any

type resource struct {
	ID         string  `json:"id"`
	Type       string  `json:"type"`
	Href       string  `json:"href"`
	Metadata   *object `json:"metadata,omitempty"`
	Properties object  `json:"properties,omitempty"`
	Entities   object  `json:"entities,omitempty"`
}

// collection has a pointer, so that "items" is absent while not expanded and [] when empty.
type collection struct {
	ID     string             `json:"id"`
	Type   string             `json:"type"`
	Href   string             `json:"href"`
	Items  *[]resource        `json:"items,omitempty"`
	Offset *int               `json:"offset,omitempty"`
	Limit  *int               `json:"limit,omitempty"`
	Links  *map[string]string `json:"_links,omitempty"`
}

func metadata(state string, created time.Time) *object {
	at := created.UTC().Format("2006-01-02T15:04:05Z")
	return &object{
		"etag": "5c8e3d8e5a1b", "state": state, "createdDate": at, "lastModifiedDate": at,
		"createdBy": "lab@example.org", "lastModifiedBy": "lab@example.org",
	}
}

// renderer knows where its cloud lives, for the hrefs.
type renderer struct{ root string }

func (r renderer) collection(id string, n, level int, item func(i, level int) resource) collection {
	c := collection{ID: id, Type: "collection", Href: r.root + "/datacenters/" + id}
	if level < 1 {
		return c
	}
	items := make([]resource, n)
	for i := range items {
		items[i] = item(i, level-2)
	}
	c.Items = &items
	return c
}

func (r renderer) datacenter(d Datacenter) resource {
	return resource{
		ID:       d.ID,
		Type:     "datacenter",
		Href:     r.root + "/datacenters/" + d.ID,
		Metadata: metadata("AVAILABLE", time.Unix(0, 0)),
		Properties: object{
			"name":              d.Name,
			"description":       "",
			"location":          d.Location,
			"version":           1,
			"features":          []string{},
			"secAuthProtection": false,
		},
		Entities: object{"servers": r.collection(d.ID+"/servers", 0, 0, nil), "lans": r.collection(d.ID+"/lans", 0, 0, nil)},
	}
}

func (r renderer) server(dc string, s Server, level int) resource {
	path := dc + "/servers/" + s.ID
	out := resource{ID: s.ID, Type: "server", Href: r.root + "/datacenters/" + path}
	if level < 0 {
		return out
	}
	out.Metadata = metadata(s.State, s.Created)
	out.Properties = object{
		"name": s.Name, "hostname": s.Name, "cores": 2, "ram": 4096, "availabilityZone": s.Zone, "vmState": s.VMState,
		"cpuFamily": "INTEL_ICELAKE", "type": "ENTERPRISE", "bootCdrom": nil, "bootVolume": nil,
	}
	out.Entities = object{
		"nics": r.collection(path+"/nics", len(s.NICs), level, func(i, l int) resource { return r.nic(dc, s, s.NICs[i], l) }),
	}
	return out
}

func (r renderer) nic(dc string, s Server, n NIC, level int) resource {
	out := resource{ID: n.ID, Type: "nic", Href: r.root + "/datacenters/" + dc + "/servers/" + s.ID + "/nics/" + n.ID}
	if level < 0 {
		return out
	}
	out.Metadata = metadata(n.State, s.Created)
	out.Properties = object{
		"name": n.Name, "mac": n.MAC, "ips": some(n.IPs), "dhcp": true, "lan": n.LAN,
		"firewallActive": false, "firewallType": "INGRESS", "deviceNumber": 1, "pciSlot": 6,
	}
	if len(n.IPv6s) > 0 {
		out.Properties["ipv6Ips"], out.Properties["dhcpv6"] = n.IPv6s, true
	}
	return out
}

func (r renderer) lan(d Datacenter, l LAN) resource {
	path := d.ID + "/lans/" + strconv.Itoa(l.ID)
	failover := []object{}
	for _, f := range l.Failover {
		failover = append(failover, object{"ip": f.IP, "nicUuid": f.NIC})
	}
	out := resource{
		ID: strconv.Itoa(l.ID), Type: "lan", Href: r.root + "/datacenters/" + path, Metadata: metadata("AVAILABLE", time.Unix(0, 0)),
		Properties: object{"name": l.Name, "public": l.Public, "ipFailover": failover, "pcc": nil},
		Entities:   object{"nics": r.collection(path+"/nics", 0, 0, nil)},
	}
	if l.IPv4CIDR != "" {
		out.Properties["ipv4CidrBlock"] = l.IPv4CIDR
	}
	if l.IPv6CIDR != "" {
		out.Properties["ipv6CidrBlock"] = l.IPv6CIDR
	}
	return out
}

func some(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
