package roster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// cloud is a whole listing, indexed so that a node is matched at a cost that does not
// grow with the fleet.
type cloud struct {
	began    time.Time // zero: there has been none
	byID     map[string]*Server
	byName   map[string][]*Server
	bad      map[string]string
	bearers  map[netip.Addr]int // how many servers bear an address
	failover map[netip.Addr]bool
}

// index prepares a listing. A server that is listed twice (pages are no snapshot) counts
// once, as first listed.
func index(l Listing, began time.Time) cloud {
	c := cloud{
		began:    began,
		byID:     make(map[string]*Server, len(l.Servers)),
		byName:   make(map[string][]*Server, len(l.Servers)),
		bad:      make(map[string]string, len(l.Invalid)),
		bearers:  map[netip.Addr]int{},
		failover: map[netip.Addr]bool{},
	}
	for id, what := range l.Invalid {
		c.bad[strings.ToLower(id)] = what
	}
	for _, s := range l.Servers {
		s.ID, s.Datacenter = strings.ToLower(s.ID), strings.ToLower(s.Datacenter)
		if c.byID[s.ID] != nil {
			continue
		}
		c.byID[s.ID] = &s
		if s.Name != "" {
			c.byName[s.Name] = append(c.byName[s.Name], &s)
		}
		for _, a := range serverAddresses(&s) {
			c.bearers[a]++
		}
	}
	for _, a := range l.Failover {
		c.failover[a.Unmap()] = true
	}
	return c
}

func (c *cloud) shared(a netip.Addr) bool { return c.failover[a] || c.bearers[a] > 1 }

func (c *cloud) exists(id string) bool {
	_, bad := c.bad[id]
	return bad || c.byID[id] != nil
}

// identity is what a machine can be known by, the stronger the lower.
type identity uint8

const (
	byProviderID identity = iota + 1
	bySystemUUID
	byName
)

// match is the machine that a node runs on, or why there is none.
type match struct {
	by     identity // what decided, either way
	server *Server  // nil: none, or its data cannot be read
	id     string   // of the machine
	why    omission
}

// match finds the machine of a node: by its provider ID, else by its system UUID, else by
// its name. What is stronger is never overruled by what is weaker: a provider ID that
// names a machine which is not there is not mended by a name.
func (c *cloud) match(n Candidate) match {
	datacenter, id, known := parseProviderID(n.ProviderID)
	claims := c.claims(n.SystemUUID)
	switch {
	case known && len(claims) > 0 && !slices.Contains(claims, id):
		return ambiguous(bySystemUUID, "The provider ID %q and the system UUID %q name different servers; the UUID is that of server %s. Find out which one this node runs on, and correct its provider ID.",
			clip(n.ProviderID), clip(n.SystemUUID), claims[0])
	case known && !c.exists(id):
		return missing(byProviderID, "No server has the ID %s from the provider ID%s. Check that IONOS_DATACENTER_ID names its datacenter, or delete the Node if the server is gone.",
			id, c.namesake(n.Name))
	case known && datacenter != "" && c.byID[id] != nil && c.byID[id].Datacenter != datacenter:
		return ambiguous(byProviderID, "The provider ID %q names the datacenter %s, but server %s is in %s. Correct the Node's provider ID.",
			clip(n.ProviderID), datacenter, id, c.byID[id].Datacenter)
	case known:
		return c.found(byProviderID, id)
	case len(claims) == 1:
		return c.found(bySystemUUID, claims[0])
	case len(claims) > 1:
		return ambiguous(bySystemUUID, "The system UUID %q is that of server %s, and in the other byte order that of server %s. Set the Node's provider ID to ionos://<server ID>.",
			clip(n.SystemUUID), claims[0], claims[1])
	}
	switch named := c.byName[n.Name]; len(named) {
	case 0:
		return missing(byName, "No server has the name %q, and %s. Check IONOS_DATACENTER_ID, or set the Node's provider ID to ionos://<server ID>.",
			clip(n.Name), idsNamingNone(n))
	case 1:
		return c.found(byName, named[0].ID)
	default:
		return ambiguous(byName, "%d servers have the name %q, among them %s and %s, and %s. Set the Node's provider ID to ionos://<server ID>.",
			len(named), clip(n.Name), named[0].ID, named[1].ID, idsNamingNone(n))
	}
}

// idsNamingNone says why neither of a node's IDs names a server, where none does.
func idsNamingNone(n Candidate) string {
	switch {
	case n.ProviderID == "" && n.SystemUUID == "":
		return "the node has neither a provider ID nor a system UUID"
	case n.ProviderID == "":
		return fmt.Sprintf("the node has no provider ID, and its system UUID %q matches no server", clip(n.SystemUUID))
	case n.SystemUUID == "":
		return fmt.Sprintf("the provider ID %q matches no server, and the node has no system UUID", clip(n.ProviderID))
	}
	return fmt.Sprintf("neither the provider ID %q nor the system UUID %q matches a server", clip(n.ProviderID), clip(n.SystemUUID))
}

func (c *cloud) found(by identity, id string) match {
	if s := c.byID[id]; s != nil {
		return match{by: by, server: s, id: id}
	}
	return match{by: by, id: id, why: omission{reason: InvalidRecord, advice: fmt.Sprintf(
		"Server %s has invalid data in the cloud (%s). It is read again with each listing.", id, clip(c.bad[id]))}}
}

// claims returns the servers that the system UUID can mean: as it stands, and with
// the bytes of its first three fields swapped, as some firmware reports it.
func (c *cloud) claims(uuid string) []string {
	uuid = strings.ToLower(uuid)
	if !isUUID(uuid) {
		return nil
	}
	var ids []string
	if c.exists(uuid) {
		ids = append(ids, uuid)
	}
	if swapped := swapUUID(uuid); swapped != uuid && c.exists(swapped) {
		ids = append(ids, swapped)
	}
	return ids
}

func (c *cloud) namesake(name string) string {
	if named := c.byName[name]; len(named) == 1 {
		return fmt.Sprintf(" (the one with the node's name is %s)", named[0].ID)
	}
	return ""
}

// parseProviderID reads both forms in use, ionos://<server> and
// ionos:///<datacenter>/<server>, in lower case. Others are not known.
func parseProviderID(s string) (datacenter, server string, ok bool) {
	rest, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(s)), "ionos://")
	if !ok {
		return "", "", false
	}
	if isUUID(rest) {
		return "", rest, true
	}
	rest, ok = strings.CutPrefix(rest, "/")
	if !ok {
		return "", "", false
	}
	datacenter, server, ok = strings.Cut(rest, "/")
	if !ok || !isUUID(datacenter) || !isUUID(server) {
		return "", "", false
	}
	return datacenter, server, true
}

// isUUID reports whether s is a UUID in its usual form, in lower case.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}

// swapUUID reverses the bytes of the first three fields.
func swapUUID(u string) string {
	return u[6:8] + u[4:6] + u[2:4] + u[0:2] + "-" + u[11:13] + u[9:11] + "-" + u[16:18] + u[14:16] + u[18:]
}

func ambiguous(by identity, format string, args ...any) match {
	return match{by: by, why: omission{reason: AmbiguousServer, advice: fmt.Sprintf(format, args...)}}
}

func missing(by identity, format string, args ...any) match {
	return match{by: by, why: omission{reason: NotFoundInIONOS, advice: fmt.Sprintf(format, args...)}}
}
